"""A headless Chromium for tests, driven over the DevTools protocol through a pair of pipes: no port, no package."""

import base64
import json
import os
import select
import shutil
import subprocess
import tempfile
import time

from limits import AN_HOUR
from needs import lacking

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
FLAGS = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--disable-dev-shm-usage",
    "--hide-scrollbars",
    "--remote-debugging-pipe",
)


def executable():
    """The browser's path."""
    found = next((path for path in map(shutil.which, NAMES) if path), None)
    if found is None:
        lacking("browser", f"no browser was found ({', '.join(NAMES)})")
    return found


class Browser:
    """One browser process; `open` gives pages. What goes wrong on a page is kept in its ``errors``."""

    def __init__(self):
        program = executable()  # may skip the test: nothing is left behind that another test would stumble over
        self.folder = tempfile.TemporaryDirectory(prefix="quaver-browser-", ignore_cleanup_errors=True)
        theirs_in, self.write = os.pipe()
        self.read, theirs_out = os.pipe()
        command = [program, *FLAGS, f"--user-data-dir={self.folder.name}", "about:blank"]
        self.process = subprocess.Popen(
            ["bash", "-c", 'exec "$@" 3<&"$IN" 4>&"$OUT"', "browser", *command],
            pass_fds=(theirs_in, theirs_out),
            env=os.environ | {"IN": str(theirs_in), "OUT": str(theirs_out)},
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        os.close(theirs_in)
        os.close(theirs_out)
        self.pending, self.sent, self.pages = b"", 0, {}

    def call(self, method, session=None, /, **parameters):
        """Send a command and wait for its result; events that come before it go to their pages."""
        self.sent += 1
        message = {"id": self.sent, "method": method, "params": parameters} | ({"sessionId": session} if session else {})
        os.write(self.write, json.dumps(message).encode() + b"\0")
        while True:
            answer = self._next()
            if answer.get("id") == self.sent:
                assert "error" not in answer, f"{method}: {answer['error']}"
                return answer["result"]
            page = self.pages.get(answer.get("sessionId"))
            if page is not None:
                page.heard(answer)

    def _next(self, seconds=AN_HOUR):
        end = time.monotonic() + seconds
        while b"\0" not in self.pending:
            ready, _, _ = select.select([self.read], [], [], max(end - time.monotonic(), 0))
            assert ready, "the browser does not answer"
            part = os.read(self.read, 1 << 20)
            assert part, "the browser has gone"
            self.pending += part
        message, _, self.pending = self.pending.partition(b"\0")
        return json.loads(message)

    def open(self, path, *, width=1280, height=900, dark=False):
        """A page that shows a file."""
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        page = self.pages[session] = Page(self, session)
        for domain in ("Page", "Runtime", "Log"):
            page.call(f"{domain}.enable")
        page.size(width, height)
        page.media(dark=dark)
        page.call("Page.navigate", url=path.resolve().as_uri())
        page.wait("document.readyState === 'complete' && location.protocol === 'file:'")
        page.settle()
        return page

    def close(self):
        for file in (self.write, self.read):  # a browser whose pipes are closed ends by itself
            os.close(file)
        try:
            self.process.wait(20)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        self.folder.cleanup()


class Page:
    def __init__(self, browser, session):
        self.browser, self.session, self.errors = browser, session, []

    def call(self, method, /, **parameters):
        return self.browser.call(method, self.session, **parameters)

    def heard(self, event):
        parameters = event.get("params", {})
        if event["method"] == "Runtime.exceptionThrown":
            self.errors.append(parameters["exceptionDetails"].get("exception", {}).get("description", "an exception"))
        if event["method"] == "Runtime.consoleAPICalled" and parameters["type"] in ("error", "warning", "assert"):
            self.errors.append(str([one.get("value") for one in parameters["args"]]))
        if event["method"] == "Log.entryAdded" and parameters["entry"]["level"] in ("error", "warning"):
            self.errors.append(parameters["entry"]["text"])

    def value(self, expression):
        """What an expression comes to; its error is the test's."""
        result = self.call("Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True)
        assert "exceptionDetails" not in result, result["exceptionDetails"]
        return result["result"].get("value")

    def wait(self, expression, seconds=AN_HOUR):
        end = time.monotonic() + seconds
        while not self.value(f"Boolean({expression})"):
            assert time.monotonic() < end, f"never came true: {expression}"
            time.sleep(0.02)

    def settle(self):
        """Wait until what was to be drawn is drawn."""
        self.value("new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)))")

    def size(self, width, height):
        self.call("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=False)

    def media(self, *, dark=False, media=""):
        features = [{"name": "prefers-color-scheme", "value": "dark" if dark else "light"}]
        self.call("Emulation.setEmulatedMedia", media=media, features=features)

    def hover(self, selector, across=0.5, down=0.5):
        """Move the mouse to a place in an element, as shares of its width and height."""
        self.value(f"document.querySelector({selector!r}).scrollIntoView({{block: 'center', behavior: 'instant'}})")
        self.settle()
        box = self.value(f"document.querySelector({selector!r}).getBoundingClientRect().toJSON()")
        x, y = box["x"] + across * box["width"], box["y"] + down * box["height"]
        self.call("Input.dispatchMouseEvent", type="mouseMoved", x=x, y=y)

    def press(self, key):
        codes = {"Enter": 13, "ArrowLeft": 37, "ArrowRight": 39, "Tab": 9, " ": 32}
        text = {"Enter": "\r", " ": " "}.get(key)
        common = {"key": key, "code": key, "windowsVirtualKeyCode": codes[key]}
        self.call("Input.dispatchKeyEvent", type="keyDown", **common, **({"text": text} if text else {}))
        self.call("Input.dispatchKeyEvent", type="keyUp", **common)

    def picture(self, path, *, whole=True):
        result = self.call("Page.captureScreenshot", format="png", captureBeyondViewport=whole)
        path.write_bytes(base64.b64decode(result["data"]))

    def pdf(self):
        return base64.b64decode(self.call("Page.printToPDF", preferCSSPageSize=True, printBackground=True)["data"])

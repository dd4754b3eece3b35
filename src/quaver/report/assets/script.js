"use strict";
// Everything that moves: theme, table, histograms, curves. Data comes from the page itself and is only ever set as text.
(function () {
  const data = JSON.parse(document.getElementById("data").textContent);
  const $ = (selector, root = document) => root.querySelector(selector);
  const $$ = (selector, root = document) => [...root.querySelectorAll(selector)];

  function element(name, attributes = {}, ...children) {
    const made = document.createElement(name);
    for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
    made.append(...children.filter((child) => child !== null && child !== undefined));
    return made;
  }
  function drawn(name, attributes = {}, ...children) {
    const made = document.createElementNS("http://www.w3.org/2000/svg", name);
    for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
    made.append(...children);
    return made;
  }

  // numbers
  const whole = new Intl.NumberFormat("en");
  function short(value) {
    if (value === 0) return "0";
    const size = Math.abs(value);
    const text = size >= 1e6 || size < 1e-4 ? value.toExponential(2).replace("e+", "e") : size >= 1000 ? whole.format(Math.round(value)) : String(Number(value.toPrecision(3)));
    return text.replaceAll("-", "−");
  }
  function percent(value) {
    if (value === 0) return "0 %";
    const size = 100 * value;
    return (size < 0.01 ? size.toPrecision(2) : size.toFixed(size < 1 ? 3 : size < 10 ? 2 : 1)) + " %";
  }

  // theme
  const root = document.documentElement;
  const system = matchMedia("(prefers-color-scheme: dark)");
  const themeButton = $("#theme");
  const isDark = () => (root.dataset.theme ? root.dataset.theme === "dark" : system.matches);
  const showTheme = () => themeButton.setAttribute("aria-pressed", String(isDark()));
  themeButton.addEventListener("click", () => {
    root.dataset.theme = isDark() ? "light" : "dark";
    try { localStorage.setItem("quaver-theme", root.dataset.theme); } catch (error) { /* it holds for this visit */ }
    showTheme();
  });
  system.addEventListener("change", showTheme);
  showTheme();

  // the table of layers
  const table = $(".layers");
  if (table) {
    const body = table.tBodies[0];
    const rows = [...body.rows];
    const heads = [...table.tHead.rows[0].cells];
    const filter = $("#filter"), fused = $("#fused"), changed = $("#changed"), count = $("#count");
    const chips = $$(".chip");
    let kind = "";

    const matching = () => {
      const words = filter.value.toLowerCase().split(/\s+/).filter(Boolean);
      let shown = 0, layers = 0;
      for (const row of rows) {
        const own = row.dataset.kind;
        const listed = own !== "fused" || (fused && fused.checked);
        const fits = words.every((word) => row.dataset.search.includes(word));
        const visible = listed && fits && (!kind || own === kind) && !(changed && changed.checked && row.dataset.same === "yes");
        if (listed) layers += 1;
        if (visible) shown += 1;
        else close(row);
        row.hidden = !visible;
      }
      count.textContent = shown === layers ? `${layers} layers` : `${shown} of ${layers} layers`;
    };
    filter.addEventListener("input", matching);
    for (const box of [fused, changed]) if (box) box.addEventListener("change", matching);
    for (const chip of chips) {
      chip.addEventListener("click", () => {
        kind = chip.dataset.kind;
        for (const other of chips) other.setAttribute("aria-pressed", String(other === chip));
        matching();
      });
    }

    const compared = (one, other) => {
      const numbers = [Number(one), Number(other)];
      return Number.isNaN(numbers[0]) || Number.isNaN(numbers[1]) ? one.localeCompare(other, "en", { numeric: true }) : numbers[0] - numbers[1];
    };
    heads.forEach((head, column) => {
      $("button", head).addEventListener("click", () => {
        const before = head.getAttribute("aria-sort");
        const order = before === "none" ? head.dataset.first : before === "ascending" ? "descending" : "ascending";
        for (const other of heads) other.setAttribute("aria-sort", other === head ? order : "none");
        const keyed = rows.map((row) => [row, row.cells[column].dataset.v]);
        keyed.sort(([, one], [, other]) => {
          if (one === "" || other === "") return (one === "") - (other === ""); // what is not known comes last, either way
          return (order === "ascending" ? 1 : -1) * compared(one, other);
        });
        for (const row of rows) close(row);
        body.append(...keyed.map(([row]) => row));
      });
    });

    // details of a layer
    function close(row) {
      const button = $(".open", row);
      if (button && button.getAttribute("aria-expanded") === "true") {
        button.setAttribute("aria-expanded", "false");
        row.nextElementSibling.remove();
      }
    }
    function open(row) {
      const button = $(".open", row);
      button.setAttribute("aria-expanded", "true");
      const sheet = element("div", { class: "sheet" });
      const name = button.textContent;
      for (const run of data.runs) {
        const layer = run.layers.find((one) => one.name === name);
        if (layer) sheet.append(...described(run, layer, data.runs.length > 1));
      }
      row.after(element("tr", { class: "details" }, element("td", { colspan: heads.length }, sheet)));
    }
    for (const row of rows) {
      const button = $(".open", row);
      if (button) button.addEventListener("click", () => (button.getAttribute("aria-expanded") === "true" ? close(row) : open(row)));
    }

    // a link to a layer, from the picture or in an address
    const arrive = () => {
      const row = /^#layer-\d+$/.test(location.hash) ? document.getElementById(location.hash.slice(1)) : null;
      if (!row) return;
      if (row.hidden) {
        filter.value = "";
        if (fused && row.dataset.kind === "fused") fused.checked = true;
        if (changed) changed.checked = false;
        chips[0].click();
      }
      for (const other of rows) other.classList.remove("found");
      row.classList.add("found");
      if ($(".open", row).getAttribute("aria-expanded") !== "true") open(row);
      row.scrollIntoView({ block: "center" });
      $(".open", row).focus({ preventScroll: true });
    };
    addEventListener("hashchange", arrive);
    document.addEventListener("click", (event) => {
      const link = event.target.closest ? event.target.closest("a.node") : null;
      if (link && link.getAttribute("href") === location.hash) arrive();
    });
    matching();
    arrive();
  }

  function described(run, layer, withName) {
    const facts = [];
    const add = (label, value) => { if (value) facts.push(element("div", {}, element("dt", {}, label), element("dd", {}, value))); };
    if (withName) add("in", run.name);
    add("defined at", layer.source);
    add("with", layer.fused.join(", "));
    for (const [role, [low, high]] of Object.entries(layer.thresholds)) add(`${role} threshold`, low === high ? short(high) : `${short(low)} … ${short(high)}`);
    const [input, weight] = layer.dB;
    if (input !== null) add("input", `${input.toFixed(1)} dB`);
    if (weight !== null) add("weight", `${weight.toFixed(1)} dB`);
    const bounded = layer.weight === null || layer.weight === undefined ? 0 : run.weights[layer.weight].bounded;
    if (bounded) add("weights bounded for processors without VNNI", percent(bounded));
    if (layer.share !== null) add("time", `${percent(layer.share)} of all`);
    add("kernel", layer.kernel);
    const parts = [element("dl", { class: "words" }, ...facts)];
    for (const index of layer.tensors) parts.push(histogram(run.tensors[index]));
    if (layer.weight !== null && layer.weight !== undefined) parts.push(histogram(run.weights[layer.weight]));
    return parts;
  }

  // Pictures are drawn in the pixels that there are, again when these change; height is fixed, so nothing moves.
  const drawers = new WeakMap();
  const watcher = new ResizeObserver((entries) => {
    for (const entry of entries) drawers.get(entry.target)();
  });
  function pictured(figure, head, height, draw) {
    const picture = drawn("svg", { height, tabindex: 0, role: "img" });
    const readout = element("p", { class: "readout" });
    figure.replaceChildren(...head, picture, readout);
    let width = 0;
    drawers.set(picture, () => {
      const now = Math.round(picture.getBoundingClientRect().width);
      if (!now || now === width) return;
      width = now;
      picture.setAttribute("viewBox", `0 0 ${width} ${height}`);
      const parts = draw(picture, readout, width);
      picture.onpointermove = (event) => parts.show(event.clientX - picture.getBoundingClientRect().left);
      picture.onpointerleave = picture.onblur = parts.rest;
      picture.onkeydown = (event) => {
        if (event.key !== "ArrowLeft" && event.key !== "ArrowRight") return;
        parts.move(event.key === "ArrowLeft" ? -1 : 1);
        event.preventDefault();
      };
      parts.rest();
    });
    watcher.observe(picture);
    drawers.get(picture)();
    return figure;
  }
  function written(text, attributes) {
    const made = drawn("text", attributes);
    made.textContent = text;
    return made;
  }

  // histograms
  function histogram(tensor, figure = element("figure", { class: "histogram" })) {
    const height = 150, top = 22, floor = height - 20;
    const low = Math.min(tensor.start, tensor.signed ? -tensor.threshold : 0), high = Math.max(tensor.end, tensor.threshold);
    const most = Math.log1p(Math.max(...tensor.counts, 1));
    const step = (tensor.end - tensor.start) / tensor.counts.length;
    const total = tensor.counts.reduce((sum, value) => sum + value, 0) || 1;
    const edge = (index) => tensor.start + index * step;
    const y = (value) => floor - ((floor - top) * Math.log1p(value)) / most;
    const clipped = tensor.clipped === 0 && tensor.largest > 1.01 * tensor.threshold ? "< 0.001 %" : percent(tensor.clipped);
    const facts = [`clipped ${clipped}`, `zeros ${percent(tensor.zeros)}`];
    if (tensor.dB !== null) facts.unshift(`${tensor.dB.toFixed(1)} dB`);
    const kind = `${tensor.bits} bits${tensor.signed ? "" : ", unsigned"}`;
    const title = tensor.name.split(/(?<=\.)/).flatMap((part) => [part, element("wbr")]); // a long name breaks behind a point
    const head = [element("figcaption", {}, element("span", {}, ...title), element("span", { class: "aside" }, kind)), element("p", { class: "facts-line" }, facts.join(" · "))];
    const resting = `99.99 % of |x| ≤ ${short(tensor.percentiles["99.99"])}` + (tensor.best ? `; least error at ${short(tensor.best)}` : "");

    return pictured(figure, head, height, (picture, readout, width) => {
      const x = (value) => 4 + ((width - 8) * (value - low)) / (high - low);
      let inside = "", outside = "";
      tensor.counts.forEach((value, index) => {
        const bar = `M${x(edge(index)).toFixed(1)} ${floor}V${y(value).toFixed(1)}H${x(edge(index + 1)).toFixed(1)}V${floor}Z`;
        if (Math.abs(edge(index + 0.5)) > tensor.threshold) outside += bar;
        else inside += bar;
      });
      const marks = tensor.signed ? [-tensor.threshold, tensor.threshold] : [tensor.threshold];
      const label = (value, at) => {
        const spot = x(value);
        const anchor = spot < 24 ? "start" : spot > width - 24 ? "end" : "middle";
        return written(short(value), { x: (anchor === "start" ? 0 : anchor === "end" ? width : spot).toFixed(1), y: at, "text-anchor": anchor });
      };
      const ends = [tensor.start, 0, tensor.end].filter((value, index, all) => all.indexOf(value) === index && (value === 0 || Math.abs(x(value) - x(0)) > 40));
      const hit = drawn("rect", { class: "hit", y: top, height: floor - top, width: Math.max(x(edge(1)) - x(edge(0)), 1).toFixed(1) });
      picture.replaceChildren(
        drawn("path", { d: inside, class: "area" }),
        drawn("path", { d: outside, class: "area clipped" }),
        drawn("path", { d: `M0 ${floor}H${width}`, class: "axis" }),
        drawn("path", { d: marks.map((mark) => `M${x(mark).toFixed(1)} ${top - 6}V${floor}`).join(""), class: "mark" }),
        ...marks.map((mark) => label(mark, 12)),
        ...ends.map((value) => label(value, height - 5)),
        hit,
      );
      picture.setAttribute("aria-label", `${tensor.name}: ${kind}, threshold ${short(tensor.threshold)}, largest ${short(tensor.largest)}, ${facts.join(", ")}`);
      let current = -1;
      const showBin = (index) => {
        current = Math.min(Math.max(index, 0), tensor.counts.length - 1);
        hit.setAttribute("x", x(edge(current)).toFixed(1));
        hit.setAttribute("visibility", "visible");
        const value = tensor.counts[current];
        readout.textContent = `${short(edge(current))} … ${short(edge(current + 1))}: ${whole.format(value)} values, ${percent(value / total)}`;
      };
      return {
        show: (at) => showBin(Math.floor((low + ((at - 4) / (width - 8)) * (high - low) - tensor.start) / step)),
        move: (by) => showBin(current < 0 ? Math.floor(tensor.counts.length / 2) : current + by),
        rest: () => { current = -1; hit.setAttribute("visibility", "hidden"); readout.textContent = resting; },
      };
    });
  }
  for (const figure of $$("figure[data-tensor]")) {
    histogram(data.runs[Number(figure.dataset.run)].tensors[Number(figure.dataset.tensor)], figure);
  }

  // training curves
  function ticks(low, high, wanted) {
    const rough = (high - low) / wanted || 1;
    const power = 10 ** Math.floor(Math.log10(rough));
    const step = [1, 2, 5, 10].map((factor) => factor * power).find((size) => size >= rough) || 10 * power;
    const found = [];
    for (let value = Math.ceil(low / step - 1e-9) * step; value <= high + 1e-9 * step; value += step) found.push(Math.abs(value) < step / 1e6 ? 0 : value);
    return found;
  }
  function curves(chart, figure) {
    const lines = [...new Set(chart.phase_starts.map((start) => start.run))]; // of words: runs with phases of their own have one each
    const height = 216, left = 48, right = 8, top = 26 + 13 * Math.max(lines.length - 1, 0), floor = height - 24;
    for (const series of chart.series) series.points = series.parts.flat();
    const points = chart.series.flatMap((series) => series.points);
    const ends = (axis) => points.reduce(([low, high], point) => [Math.min(low, point[axis]), Math.max(high, point[axis])], [Infinity, -Infinity]);
    const [first, x1] = ends(0);
    const x0 = Math.min(first, ...chart.phase_starts.map((mark) => mark.x)); // a phase has room even before its first point
    let [y0, y1] = ends(1);
    if (y0 === y1) { y0 -= Math.abs(y0) / 10 || 1; y1 += Math.abs(y1) / 10 || 1; }
    if (chart.kind === "number" && y0 > 0 && y0 < 0.5 * y1) y0 = 0;
    const pad = 0.04 * (y1 - y0);
    y1 += pad;
    if (y0 !== 0) y0 -= pad;
    const y = (value) => floor - ((floor - top) * (value - y0)) / (y1 - y0);
    const words = chart.kind === "percent" ? (value) => `${(100 * value).toFixed(y1 - y0 < 0.1 ? 1 : 0)} %` : short;
    const exact = chart.kind === "percent" ? (value) => `${(100 * value).toFixed(2)} %` : short;
    const compared = data.runs.length > 1;
    const said = (index, value) => (compared ? `${chart.series[index].label} ` : "") + exact(value);
    const resting = chart.series.map((series, index) => said(index, series.points.at(-1)[1])).join(", ") + " at the end";
    const keys = compared ? [element("div", { class: "keys" }, ...chart.series.map((series) => element("span", { class: `k${series.run}` }, series.label)))] : [];
    if (compared) figure.classList.add("two");

    pictured(figure, [element("figcaption", {}, chart.title), ...keys], height, (picture, readout, width) => {
      const x = (value) => left + ((width - left - right) * (value - x0)) / (x1 - x0 || 1);
      const dots = chart.series.map((series) => drawn("circle", { r: 3.5, class: `dot s${series.run}` }));
      const near = (value) => (value > width - 24 ? "end" : "middle");
      picture.replaceChildren(
        ...ticks(y0, y1, 4).flatMap((value) => [
          drawn("path", { d: `M${left} ${y(value).toFixed(1)}H${width - right}`, class: "grid" }),
          written(words(value), { x: left - 8, y: (y(value) + 4).toFixed(1), "text-anchor": "end" }),
        ]),
        ...ticks(x0, x1, width / 90).map((value) => written(short(value), { x: x(value).toFixed(1), y: height - 6, "text-anchor": near(x(value)) })),
        ...chart.phase_starts.map((mark) => drawn("path", { d: mark.x > x0 ? `M${x(mark.x).toFixed(1)} ${top - 16}V${floor}` : "", class: mark.run === null ? "phase" : `phase s${mark.run}` })),
        ...chart.phase_starts.flatMap((mark, index) => {
          const at = x(mark.x) + (mark.x > x0 ? 6 : 0), next = chart.phase_starts[index + 1];
          const room = (next && next.run === mark.run ? x(next.x) : width) - at;
          const letters = Math.floor(room / 6.4);
          return letters < 4 ? [] : [written(mark.label.length > letters ? `${mark.label.slice(0, letters - 1)}…` : mark.label, { x: at.toFixed(1), y: 12 + 13 * lines.indexOf(mark.run), class: mark.run === null ? "" : `of${mark.run}` })];
        }),
        ...chart.series.map((series) =>
          drawn("path", { d: series.parts.map((part) => part.map((point, place) => `${place ? "L" : "M"}${x(point[0]).toFixed(1)} ${y(point[1]).toFixed(1)}`).join("")).join(""), class: `line s${series.run}` }),
        ),
        ...chart.series.flatMap((series) =>  // a part of one point has no line
          series.parts.filter((part) => part.length === 1).map(([point]) => drawn("circle", { r: 3, cx: x(point[0]).toFixed(1), cy: y(point[1]).toFixed(1), class: `point s${series.run}` })),
        ),
        ...dots,
      );
      picture.setAttribute("aria-label", `${chart.title}: ${resting}`);
      let current = null;
      const showAt = (value) => {
        current = Math.min(Math.max(value, x0), x1);
        const found = chart.series.map((series) => series.points.reduce((best, point) => (Math.abs(point[0] - current) < Math.abs(best[0] - current) ? point : best)));
        found.forEach((point, index) => {
          dots[index].setAttribute("cx", x(point[0]).toFixed(1));
          dots[index].setAttribute("cy", y(point[1]).toFixed(1));
          dots[index].setAttribute("visibility", "visible");
        });
        readout.textContent = `step ${whole.format(Math.round(found[0][0]))}: ` + found.map((point, index) => said(index, point[1])).join(", ");
      };
      return {
        show: (at) => showAt(x0 + ((at - left) / (width - left - right)) * (x1 - x0)),
        move: (by) => showAt((current === null ? (x0 + x1) / 2 : current) + (by * (x1 - x0)) / 50),
        rest: () => { current = null; for (const dot of dots) dot.setAttribute("visibility", "hidden"); readout.textContent = resting; },
      };
    });
  }
  for (const figure of $$("figure[data-chart]")) curves(data.charts[Number(figure.dataset.chart)], figure);
})();

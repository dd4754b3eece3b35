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
        const fits = words.every((word) => row.dataset.words.includes(word));
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
    add("kernel", layer.kernel);
    const parts = [element("dl", { class: "words" }, ...facts)];
    for (const index of layer.tensors) parts.push(histogram(run.tensors[index], "input"));
    if (layer.weight !== null && layer.weight !== undefined) parts.push(histogram(run.weights[layer.weight], "weight"));
    return parts;
  }

  // histograms
  function histogram(tensor, role, figure = element("figure", { class: "histogram" })) {
    const width = 420, height = 150, top = 16, bottom = 20;
    const low = Math.min(tensor.start, tensor.signed ? -tensor.threshold : 0), high = Math.max(tensor.end, tensor.threshold);
    const room = 0.02 * (high - low);
    const x = (value) => (width * (value - low + room)) / (high - low + 2 * room);
    const most = Math.log1p(Math.max(...tensor.counts, 1));
    const y = (value) => height - bottom - ((height - top - bottom) * Math.log1p(value)) / most;
    const step = (tensor.end - tensor.start) / tensor.counts.length;
    const total = tensor.counts.reduce((sum, value) => sum + value, 0) || 1;
    const place = (index) => tensor.start + index * step;
    const floor = height - bottom;
    let inside = "", outside = "";
    tensor.counts.forEach((value, index) => {
      const middle = place(index + 0.5);
      const bar = `M${x(place(index)).toFixed(1)} ${floor}V${y(value).toFixed(1)}H${x(place(index + 1)).toFixed(1)}V${floor}Z`;
      if (Math.abs(middle) > tensor.threshold) outside += bar;
      else inside += bar;
    });
    const marks = tensor.signed ? [-tensor.threshold, tensor.threshold] : [tensor.threshold];
    const picture = drawn("svg", { viewBox: `0 0 ${width} ${height}`, tabindex: 0, role: "img" });
    const words = `${tensor.name}: ${tensor.bits} bits, threshold ${short(tensor.threshold)}, largest ${short(tensor.largest)}, clipped ${percent(tensor.clipped)}, zeros ${percent(tensor.zeros)}`;
    picture.setAttribute("aria-label", words);
    picture.append(
      drawn("path", { d: inside, class: "area" }),
      drawn("path", { d: outside, class: "area clipped" }),
      drawn("path", { d: `M0 ${floor}H${width}`, class: "axis" }),
      drawn("path", { d: marks.map((mark) => `M${x(mark).toFixed(1)} ${top - 6}V${floor}`).join(""), class: "mark" }),
    );
    const label = (value, text, at = height - 5) => {
      const spot = x(value);
      const anchor = spot < 40 ? "start" : spot > width - 40 ? "end" : "middle";
      const made = drawn("text", { x: (anchor === "start" ? Math.max(spot - 8, 0) : anchor === "end" ? Math.min(spot + 8, width) : spot).toFixed(1), y: at, "text-anchor": anchor });
      made.textContent = text;
      picture.append(made);
    };
    label(tensor.threshold, short(tensor.threshold), top - 8);
    if (tensor.signed) label(-tensor.threshold, short(-tensor.threshold), top - 8);
    for (const value of new Set([tensor.start, 0, tensor.end])) {
      if (value === 0 || Math.abs(x(value) - x(0)) > 30) label(value, short(value));
    }
    const hit = drawn("rect", { class: "hit", y: top, height: floor - top, width: Math.max(x(place(1)) - x(place(0)), 1), visibility: "hidden" });
    picture.append(hit);
    const resting = `99.99 % of |x| ≤ ${short(tensor.percentiles["99.99"])}` + (tensor.best ? `; least error at ${short(tensor.best)}` : "");
    const readout = element("p", { class: "readout" }, resting);
    let current = -1;
    const show = (index) => {
      current = Math.min(Math.max(index, 0), tensor.counts.length - 1);
      hit.setAttribute("x", x(place(current)).toFixed(1));
      hit.setAttribute("visibility", "visible");
      const value = tensor.counts[current];
      readout.textContent = `${short(place(current))} … ${short(place(current + 1))}: ${whole.format(value)} values, ${percent(value / total)}`;
    };
    const rest = () => { current = -1; hit.setAttribute("visibility", "hidden"); readout.textContent = resting; };
    picture.addEventListener("pointermove", (event) => {
      const box = picture.getBoundingClientRect();
      const value = ((event.clientX - box.left) / box.width) * (high - low + 2 * room) + low - room;
      show(Math.floor((value - tensor.start) / step));
    });
    picture.addEventListener("pointerleave", rest);
    picture.addEventListener("blur", rest);
    picture.addEventListener("keydown", (event) => {
      const moves = { ArrowLeft: -1, ArrowRight: 1 };
      if (!(event.key in moves)) return;
      show(current < 0 ? Math.floor(tensor.counts.length / 2) : current + moves[event.key]);
      event.preventDefault();
    });
    const facts = [`${tensor.bits} bits${tensor.signed ? "" : ", unsigned"}`, `clipped ${percent(tensor.clipped)}`, `zeros ${percent(tensor.zeros)}`];
    if (tensor.dB !== null) facts.push(`${tensor.dB.toFixed(1)} dB`);
    figure.replaceChildren(
      element("figcaption", {}, role === "weight" ? tensor.name : tensor.name),
      element("p", { class: "facts-line" }, facts.join(" · ")),
      picture,
      readout,
    );
    return figure;
  }
  for (const figure of $$("figure[data-tensor]")) {
    histogram(data.runs[Number(figure.dataset.run)].tensors[Number(figure.dataset.tensor)], "input", figure);
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
    const width = 420, height = 210, left = 46, right = 8, top = 12, bottom = 24;
    const points = chart.series.flatMap((series) => series.points);
    const xs = points.map((point) => point[0]), ys = points.map((point) => point[1]);
    const reduce = (values, choose) => values.reduce((one, other) => choose(one, other));
    const x0 = reduce(xs, Math.min), x1 = reduce(xs, Math.max);
    let y0 = reduce(ys, Math.min), y1 = reduce(ys, Math.max);
    if (y0 === y1) { y0 -= Math.abs(y0) / 10 || 1; y1 += Math.abs(y1) / 10 || 1; }
    if (chart.kind === "number" && y0 > 0 && y0 < 0.5 * y1) y0 = 0;
    const pad = 0.05 * (y1 - y0);
    y1 += pad;
    if (y0 !== 0) y0 -= pad;
    const x = (value) => left + ((width - left - right) * (value - x0)) / (x1 - x0 || 1);
    const y = (value) => height - bottom - ((height - top - bottom) * (value - y0)) / (y1 - y0);
    const words = chart.kind === "percent" ? (value) => `${(100 * value).toFixed(y1 - y0 < 0.1 ? 1 : 0)} %` : short;
    const exact = chart.kind === "percent" ? (value) => `${(100 * value).toFixed(2)} %` : short;
    const picture = drawn("svg", { viewBox: `0 0 ${width} ${height}`, tabindex: 0, role: "img", "aria-label": `${chart.title} over ${short(x1 - x0)} steps` });
    const write = (text, attributes) => { const made = drawn("text", attributes); made.textContent = text; picture.append(made); };
    for (const value of ticks(y0, y1, 4)) {
      picture.append(drawn("path", { d: `M${left} ${y(value).toFixed(1)}H${width - right}`, class: "grid" }));
      write(words(value), { x: left - 7, y: (y(value) + 4).toFixed(1), "text-anchor": "end" });
    }
    for (const value of ticks(x0, x1, 4)) write(short(value), { x: x(value).toFixed(1), y: height - 6, "text-anchor": x(value) > width - 24 ? "end" : "middle" });
    for (const mark of chart.marks) {
      if (mark.x > x0) picture.append(drawn("path", { d: `M${x(mark.x).toFixed(1)} ${top}V${height - bottom}`, class: "phase" }));
      write(mark.label, { x: (x(Math.max(mark.x, x0)) + 5).toFixed(1), y: top + 8 });
    }
    chart.series.forEach((series, index) => {
      const path = series.points.map((point, place) => `${place ? "L" : "M"}${x(point[0]).toFixed(1)} ${y(point[1]).toFixed(1)}`).join("");
      picture.append(drawn("path", { d: path, class: `line s${index}` }));
    });
    const dots = chart.series.map((series, index) => drawn("circle", { r: 3.5, class: `dot s${index}`, visibility: "hidden" }));
    picture.append(...dots);
    const last = () => chart.series.map((series) => (chart.series.length > 1 ? `${series.label}: ` : "") + exact(series.points.at(-1)[1])).join("; ") + " at the end";
    const readout = element("p", { class: "readout" }, last());
    let current = null;
    const show = (value) => {
      current = Math.min(Math.max(value, x0), x1);
      const found = chart.series.map((series) => series.points.reduce((best, point) => (Math.abs(point[0] - current) < Math.abs(best[0] - current) ? point : best)));
      found.forEach((point, index) => {
        dots[index].setAttribute("cx", x(point[0]).toFixed(1));
        dots[index].setAttribute("cy", y(point[1]).toFixed(1));
        dots[index].setAttribute("visibility", "visible");
      });
      readout.textContent = `step ${short(Math.round(found[0][0]))}: ` + found.map((point, index) => (chart.series.length > 1 ? `${chart.series[index].label} ` : "") + exact(point[1])).join(", ");
    };
    const rest = () => { current = null; for (const dot of dots) dot.setAttribute("visibility", "hidden"); readout.textContent = last(); };
    picture.addEventListener("pointermove", (event) => {
      const box = picture.getBoundingClientRect();
      show(x0 + ((((event.clientX - box.left) / box.width) * width - left) / (width - left - right)) * (x1 - x0));
    });
    picture.addEventListener("pointerleave", rest);
    picture.addEventListener("blur", rest);
    picture.addEventListener("keydown", (event) => {
      const moves = { ArrowLeft: -1, ArrowRight: 1 };
      if (!(event.key in moves)) return;
      show((current === null ? (x0 + x1) / 2 : current) + (moves[event.key] * (x1 - x0)) / 50);
      event.preventDefault();
    });
    const keys = chart.series.length > 1 ? element("div", { class: "keys" }, ...chart.series.map((series) => element("span", {}, series.label))) : null;
    if (chart.series.length > 1) figure.classList.add("two");
    figure.replaceChildren(...[element("figcaption", {}, chart.title), keys, picture, readout].filter(Boolean));
  }
  for (const figure of $$("figure[data-chart]")) curves(data.charts[Number(figure.dataset.chart)], figure);
})();

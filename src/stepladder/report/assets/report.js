"use strict";
(() => {
  const root = document.documentElement;
  const page = JSON.parse(document.getElementById("page").textContent);
  const figures = JSON.parse(document.getElementById("figures").textContent);
  const dark = window.matchMedia("(prefers-color-scheme: dark)");
  const errors = [];
  window.addEventListener("error", (event) => { errors.push(event.message); report(); });

  function report() {
    root.dataset.chartsDrawn = document.querySelectorAll(".plot .main-svg").length ? document.querySelectorAll(".plot.js-plotly-plot").length : 0;
    root.dataset.chartsExpected = document.querySelectorAll(".plot").length;
    root.dataset.errors = errors.join("; ");
    root.dataset.overflow = Math.max(0, root.scrollWidth - root.clientWidth);
  }

  // Colours stand in the figures in their light form; a dark page swaps each for its counterpart.
  function themed(value, isDark) {
    if (typeof value === "string") return isDark && page.dark[value] || value;
    if (Array.isArray(value)) return value.length && typeof value[0] === "object" ? value.map((v) => themed(v, isDark)) : value;
    if (value && typeof value === "object") {
      return Object.fromEntries(Object.entries(value).map(([k, v]) => [k, themed(v, isDark)]));
    }
    return value;
  }

  function shown(meta) {
    return !meta || [...document.querySelectorAll(".filters fieldset[data-tag]")].every((set) => {
      const box = [...set.querySelectorAll("input")].find((input) => input.value === meta[set.dataset.tag]);
      return !box || box.checked;
    });
  }

  // Centred mean, shorter at the ends. Only series long enough to have a trend to show.
  function smoothed(values, layout) {
    const box = document.getElementById("smooth");
    if (!layout.meta.noisy || !box || !box.checked || values.length < 20) return values;
    return values.map((value, i) => {
      if (value === null) return null;
      const near = values.slice(Math.max(0, i - 4), i + 5).filter((v) => v !== null);
      return near.reduce((sum, v) => sum + v, 0) / near.length;
    });
  }

  // On a phone the labels of an interval chart take more lines and less width.
  function narrow(layout, isInterval) {
    if (!isInterval) return;
    const wrapped = layout.yaxis.ticktext.map((label) => label.replace(/(.{1,20})(?: |$)/g, "$1<br>").replace(/(<br>)+/g, "<br>").replace(/<br>$/, ""));
    const lines = Math.max(1, ...wrapped.map((label) => label.split("<br>").length));
    layout.yaxis = { ...layout.yaxis, ticktext: wrapped };
    layout.height = 110 + wrapped.length * (14 + 14 * lines);
  }

  function draw(isDark) {
    for (const node of document.querySelectorAll(".plot")) {
      const figure = themed(figures[node.dataset.figure], isDark);
      const style = getComputedStyle(root);
      const layout = { ...figure.layout };
      layout.font = { ...layout.font, family: getComputedStyle(document.body).fontFamily };
      layout.hoverlabel = {
        ...layout.hoverlabel,
        bgcolor: style.getPropertyValue("--card").trim(),
        bordercolor: style.getPropertyValue("--line").trim(),
        font: { color: style.getPropertyValue("--text").trim() },
      };
      layout.modebar = { bgcolor: "rgba(0,0,0,0)", color: style.getPropertyValue("--soft").trim() };
      if (node.clientWidth < 480) {
        layout.font.size = 11;
        layout.margin = { ...layout.margin, l: 44, r: 6 };
        narrow(layout, node.closest(".stacked"));
      }
      if (node.closest(".filtered")) {
        layout.showlegend = false;
        for (const trace of figure.data) {
          trace.visible = shown(trace.meta);
          trace.y = smoothed(trace.y, layout);
        }
      }
      // The box gets its height before Plotly draws, on paper too.
      node.style.height = `${layout.height}px`;
      Plotly.react(node, figure.data, layout, {
        responsive: true, displaylogo: false, scrollZoom: false,
        displayModeBar: node.clientWidth < 480 ? false : "hover",
        modeBarButtons: [["toImage", "resetScale2d"]],
      });
    }
    key(isDark);
    report();
  }

  function key(isDark) {
    const list = document.getElementById("dynamics-key");
    if (!list) return;
    const seen = new Map();
    for (const node of document.querySelectorAll(".filtered .plot")) {
      for (const trace of figures[node.dataset.figure].data) {
        if (!shown(trace.meta)) continue;
        if (!seen.has(trace.legendgroup)) seen.set(trace.legendgroup, themed(trace.line, isDark));
      }
    }
    list.replaceChildren(...[...seen].map(([name, line]) => {
      const item = document.createElement("li");
      const sample = document.createElement("i");
      sample.style.color = line.color;
      if (line.dash === "dash") sample.className = "dashed";
      item.append(sample, name);
      return item;
    }));
  }

  function fillValues(details) {
    const box = details.querySelector(".scroll");
    if (box.firstChild) return;
    const lines = figures[details.dataset.figure].data;
    const steps = [...new Set(lines.flatMap((line) => line.x))].sort((a, b) => a - b);
    const maps = lines.map((line) => new Map(line.x.map((step, index) => [step, line.y[index]])));
    const table = document.createElement("table");
    const head = table.createTHead().insertRow();
    const names = lines.map((line) => line.hovertemplate.split("<br>")[0]);
    for (const name of [page.step, ...names]) {
      const cell = document.createElement("th");
      cell.scope = "col";
      cell.className = "num";
      cell.textContent = name;
      head.append(cell);
    }
    const body = table.createTBody();
    for (const step of steps) {
      const row = body.insertRow();
      for (const value of [step, ...maps.map((map) => map.get(step))]) {
        const cell = row.insertCell();
        cell.className = "num";
        cell.textContent = value === undefined || value === null ? "" : String(Number(value.toPrecision(4)));
      }
    }
    box.append(table);
  }

  for (const details of document.querySelectorAll("details.values")) {
    details.addEventListener("toggle", () => details.open && fillValues(details));
  }
  const filters = document.querySelector(".filters");
  if (filters) {
    filters.addEventListener("submit", (event) => event.preventDefault());
    filters.addEventListener("change", () => {
      for (const node of document.querySelectorAll(".filtered .plot")) {
        const { data: traces, layout } = figures[node.dataset.figure];
        Plotly.restyle(node, {
          visible: traces.map((trace) => shown(trace.meta)),
          y: traces.map((trace) => smoothed(trace.y, layout)),
        });
      }
      key(dark.matches);
    });
  }
  dark.addEventListener("change", () => draw(dark.matches));
  let opened = [];
  window.addEventListener("beforeprint", () => {
    opened = [...document.querySelectorAll("details.data:not([open])")];
    for (const details of opened) details.open = true;
    draw(false);
  });
  window.addEventListener("afterprint", () => {
    for (const details of opened) details.open = false;
    draw(dark.matches);
  });
  window.addEventListener("resize", report);
  draw(dark.matches);
})();

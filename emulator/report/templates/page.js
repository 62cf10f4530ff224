"use strict";
// Draws the charts. Their colours and fonts are names of CSS variables, which are resolved when a
// chart is drawn, so that it fits light, dark and print; a change of the scheme redraws all charts.
(() => {
  const root = document.documentElement;
  const charts = JSON.parse(document.getElementById("charts").textContent);
  const places = [...document.querySelectorAll("[data-chart]")];
  const dark = matchMedia("(prefers-color-scheme: dark)");
  const touch = matchMedia("(pointer: coarse)");
  const PRINTED = 690; // CSS pixels between the margins of A4 and letter
  const hidden = new Set();

  function coloured(value, style) {
    if (typeof value === "string") {
      return value.startsWith("--") ? style.getPropertyValue(value).trim() || value : value;
    }
    if (Array.isArray(value)) {
      return typeof value[0] === "number" ? value : value.map((one) => coloured(one, style));
    }
    if (value && typeof value === "object") {
      return Object.fromEntries(Object.entries(value).map(([k, v]) => [k, coloured(v, style)]));
    }
    return value;
  }

  function draw(place, width) {
    const chart = coloured(charts[place.dataset.chart], getComputedStyle(root));
    for (const trace of chart.data) {
      if (hidden.has(trace.name) && place.closest(".panels")) trace.visible = false;
    }
    // A finger scrolls the page, so only a mouse zooms.
    chart.layout.dragmode = touch.matches ? false : "zoom";
    // As many ticks as there is room for, because Plotly lets long labels overlap.
    const room = width || place.clientWidth;
    chart.layout.xaxis.nticks = Math.max(3, Math.min(9, Math.floor(room / 60)));
    if (width) Object.assign(chart.layout, { width, autosize: false });
    const config = {
      responsive: !width,
      displaylogo: false,
      displayModeBar: false,
      scrollZoom: false,
      showTips: false,
    };
    return Plotly.react(place, chart.data, chart.layout, config);
  }

  function drawAll() {
    for (const place of places) draw(place);
  }

  function print(on) {
    root.classList.toggle("printing", on);
    for (const place of places) {
      const half = place.closest(".panels:not(.whole)");
      draw(place, on ? (half ? (PRINTED - 16) / 2 : PRINTED) : undefined);
    }
  }

  function toggle(button) {
    const name = button.dataset.series;
    const off = !hidden.delete(name);
    if (off) hidden.add(name);
    button.setAttribute("aria-pressed", String(!off));
    for (const place of places) if (place.closest(".panels")) draw(place);
  }

  async function unpacked() {
    const packed = atob(document.getElementById("plotly").textContent);
    const bytes = Uint8Array.from(packed, (character) => character.charCodeAt(0));
    const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip"));
    return new Response(stream).text();
  }

  async function start() {
    const script = document.createElement("script");
    script.textContent = await unpacked();
    document.head.append(script); // runs at once; the page's policy allows its hash
    for (const place of places) {
      place.textContent = "";
      await draw(place);
    }
    dark.addEventListener("change", drawAll);
    addEventListener("beforeprint", () => print(true));
    addEventListener("afterprint", () => print(false));
    for (const button of document.querySelectorAll("[data-series]")) {
      button.addEventListener("click", () => toggle(button));
    }
    root.dataset.charts = "drawn";
  }

  start().catch((error) => {
    root.dataset.charts = "failed";
    for (const place of places) {
      if (!place.childElementCount) {
        place.textContent = `No chart: this browser can't draw it (${error}). Use a browser from 2023 or later.`;
      }
    }
  });
})();

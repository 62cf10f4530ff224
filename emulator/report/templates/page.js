"use strict";
// Draws the charts. Their colours and fonts are names of CSS variables, which are resolved when a
// chart is drawn, so that it fits light, dark and print; a change of the scheme redraws all charts.
// Charts with the same x are zoomed together, and show together where one points.
(() => {
  const root = document.documentElement;
  let charts = {};
  const places = [...document.querySelectorAll("[data-chart]")];
  const dark = matchMedia("(prefers-color-scheme: dark)");
  const touch = matchMedia("(pointer: coarse)");
  const PRINTED = 690; // CSS pixels between the margins of A4 and letter
  const CHARACTER = 6.2; // CSS pixels of one in a fault's label
  const shown = new Map(); // what was clicked on, by name
  const zooms = {}; // ranges, by what the axis counts
  let pointed = {}; // what the pointer is at, and what that counts

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
      if (shown.has(trace.name) && place.closest(".panels")) trace.visible = shown.get(trace.name);
    }
    // A finger scrolls the page, so only a mouse zooms.
    chart.layout.dragmode = touch.matches ? false : "zoom";
    // As many ticks as there is room for, because Plotly lets long labels overlap.
    const room = width || place.clientWidth;
    chart.layout.xaxis.nticks = Math.max(3, Math.min(9, Math.floor(room / 60)));
    if (zooms[chart.x]) chart.layout.xaxis.range = zooms[chart.x];
    chart.layout.annotations = labels(chart.layout, room);
    if (width) Object.assign(chart.layout, { width, autosize: false });
    const config = {
      responsive: !width,
      displaylogo: false,
      displayModeBar: false,
      scrollZoom: false,
      showTips: false,
    };
    return Plotly.react(place, chart.data, chart.layout, config).then(() => mark(place));
  }

  // The labels of faults that have room beside the one before.
  function labels(layout, room) {
    const [begin, end] = layout.xaxis.range;
    const scale = (room - 60) / (end - begin);
    let free = -Infinity;
    return (layout.annotations || []).filter((label) => {
      const at = (label.x - begin) * scale;
      const width = label.text.length * CHARACTER;
      const left = label.xanchor === "right" ? at - width : at;
      const fits = label.x >= begin && label.x <= end && left > free && left + width < room;
      if (fits) free = Math.max(at, left + width) + CHARACTER;
      return fits;
    });
  }

  function drawAll() {
    for (const place of places) draw(place);
  }

  function print(on) {
    root.classList.toggle("printing", on);
    for (const place of places) {
      const half = place.closest(".panels figure:not(.whole)");
      draw(place, on ? (half ? (PRINTED - 16) / 2 : PRINTED) : undefined);
    }
  }

  function toggle(button) {
    const on = button.getAttribute("aria-pressed") !== "true";
    for (const other of document.querySelectorAll("[data-series]")) {
      if (other.dataset.series === button.dataset.series) {
        other.setAttribute("aria-pressed", String(on));
      }
    }
    shown.set(button.dataset.series, on);
    for (const place of places) if (place.closest(".panels")) draw(place);
  }

  // Zooms every chart that counts the same; a double click shows all again.
  function zoom(place, change) {
    const counts = charts[place.dataset.chart].x;
    if (change["xaxis.range[0]"] !== undefined) {
      zooms[counts] = [change["xaxis.range[0]"], change["xaxis.range[1]"]];
    } else if (change["xaxis.range"]) {
      zooms[counts] = change["xaxis.range"];
    } else if (change["xaxis.autorange"]) {
      delete zooms[counts];
    } else {
      return;
    }
    for (const other of places) if (charts[other.dataset.chart].x === counts) draw(other);
  }

  // A line at what the pointer is at, in every chart that counts the same.
  function point(place, event) {
    const { l: left, w: width } = place._fullLayout._size; // of the area of a plot
    const share = (event.clientX - place.getBoundingClientRect().left - left) / width;
    const [begin, end] = place.layout.xaxis.range;
    const counts = charts[place.dataset.chart].x;
    pointAt(share >= 0 && share <= 1 ? { counts, at: begin + share * (end - begin) } : {});
  }

  function pointAt(what) {
    pointed = what;
    for (const place of places) mark(place);
  }

  function mark(place) {
    const line = place.querySelector(".cursor");
    if (!line) return; // drawn for the first time
    const [begin, end] = place.layout.xaxis.range;
    const { counts, at } = pointed;
    line.hidden = charts[place.dataset.chart].x !== counts || at < begin || at > end;
    if (line.hidden) return;
    const share = (at - begin) / (end - begin);
    const { l: left, t: top, w: width, h: height } = place._fullLayout._size;
    line.style.left = `${left + share * width}px`;
    line.style.top = `${top}px`;
    line.style.height = `${height}px`;
    const digits = Math.min(3, Math.max(0, 2 - Math.floor(Math.log10(end - begin))));
    const label = line.firstChild;
    label.textContent = counts === "steps" ? `step ${Math.round(at)}` : `${at.toFixed(digits)} s`;
    label.style.transform = `translateX(${-100 * share}%)`; // it stays within the chart
  }

  function pointable(place) {
    const line = document.createElement("div");
    line.className = "cursor";
    line.hidden = true;
    line.setAttribute("aria-hidden", "true");
    line.append(document.createElement("span"));
    place.append(line);
    for (const kind of ["pointermove", "pointerdown"]) {
      place.addEventListener(kind, (event) => point(place, event));
    }
    place.addEventListener("pointerleave", (event) => {
      if (event.pointerType !== "touch") pointAt({}); // a finger leaves at once
    });
  }

  function save(button) {
    const name = button.dataset.of;
    const place = places.find((one) => one.dataset.chart === name);
    const filename = `${document.title.split(":")[0]}-${name}`.replace(/[^\w.-]+/g, "-");
    if (button.dataset.save === "png") {
      const { clientWidth: width, clientHeight: height } = place;
      Plotly.downloadImage(place, { format: "png", scale: 2, width, height, filename });
      return;
    }
    const link = document.createElement("a");
    link.href = URL.createObjectURL(new Blob([csv(charts[name])], { type: "text/csv" }));
    link.download = `${filename}.csv`;
    link.click();
    URL.revokeObjectURL(link.href);
  }

  // A row for each point, state or phase: where it begins, and where it ends or its value.
  function csv(chart) {
    const quoted = (text) => `"${String(text).replaceAll('"', '""')}"`;
    const rows = [`name,task,${chart.x.replaceAll(" ", "_")},until,value`];
    for (const trace of chart.data) {
      if (trace.fill === "toself" || trace.mode === "markers") continue;
      trace.x.forEach((x, n) => {
        if (trace.orientation === "h") {
          const task = chart.layout.yaxis2.ticktext[trace.y[n]];
          const begin = trace.base[n];
          rows.push([quoted(trace.name), quoted(task), begin, begin + x, ""].join(","));
        } else if (trace.type === "bar") {
          const half = trace.width[n] / 2;
          rows.push([quoted(trace.name), "", x - half, x + half, ""].join(","));
        } else if (trace.y[n] !== null) {
          rows.push([quoted(trace.name), "", x, "", trace.y[n]].join(","));
        }
      });
    }
    return `${rows.join("\n")}\n`;
  }

  async function unpacked(id) {
    const packed = atob(document.getElementById(id).textContent);
    const bytes = Uint8Array.from(packed, (character) => character.charCodeAt(0));
    const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip"));
    return new Response(stream).text();
  }

  async function start() {
    const script = document.createElement("script");
    script.textContent = await unpacked("plotly");
    charts = JSON.parse(await unpacked("charts"));
    document.head.append(script); // runs at once; the page's policy allows its hash
    for (const place of places) {
      place.textContent = "";
      await draw(place);
      place.on("plotly_relayout", (change) => zoom(place, change));
      pointable(place);
    }
    addEventListener("pointerdown", (event) => {
      if (!event.target.closest("[data-chart]")) pointAt({});
    });
    dark.addEventListener("change", drawAll);
    addEventListener("beforeprint", () => print(true));
    addEventListener("afterprint", () => print(false));
    for (const button of document.querySelectorAll("[data-series]")) {
      button.addEventListener("click", () => toggle(button));
    }
    for (const button of document.querySelectorAll("[data-save]")) {
      button.addEventListener("click", () => save(button));
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

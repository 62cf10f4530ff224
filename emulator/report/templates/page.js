"use strict";
// Draws the charts. Their colours and fonts are names of CSS variables, which are resolved when a
// chart is drawn, so that it fits light, dark and print; a change of the scheme redraws all charts.
// Charts with the same x are zoomed together, and show together where one points.
(() => {
  const root = document.documentElement;
  let charts = {};
  let places = []; // elements with a chart, in the order of the page
  const dark = matchMedia("(prefers-color-scheme: dark)");
  const touch = matchMedia("(pointer: coarse)");
  const PRINTED = 690; // CSS pixels between the margins of A4 and letter
  const CHARACTER = 6.2; // CSS pixels of one in a fault's label
  const shown = new Map(); // what was clicked on, by name
  const zooms = {}; // ranges, by what the axis counts
  const switched = new Set(); // `log` and `smooth` with the name of a chart
  let chosen = null; // the fault whose stages are shown
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

  const of = (place) => charts[place.dataset.chart];

  function drawIn(place, width) {
    const chart = coloured(of(place), getComputedStyle(root));
    for (const trace of chart.data) {
      if (shown.has(trace.name) && place.closest(".panels")) trace.visible = shown.get(trace.name);
    }
    if (switched.has(`smooth ${place.dataset.chart}`)) chart.data.forEach(smooth);
    if (switched.has(`log ${place.dataset.chart}`)) logarithmic(chart);
    if (chosen && chart.faults) addStages(chart);
    // A finger scrolls the page, so only a mouse zooms.
    chart.layout.dragmode = touch.matches ? false : "zoom";
    // As many ticks as there is room for, because Plotly lets long labels overlap.
    const room = width || place.clientWidth;
    chart.layout.xaxis.nticks = Math.max(3, Math.min(9, Math.floor(room / 60)));
    // A copy: Plotly changes the range of a chart in place, and the whole one is needed again.
    chart.layout.xaxis.range = [...(zooms[chart.x] || chart.layout.xaxis.range)];
    chart.layout.annotations = labels(chart.layout, room);
    if (chart.stages) chart.layout.annotations.push(...chart.stages);
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

  // Draws the charts for the first time, one after the other.
  async function drawEach() {
    places = [...document.querySelectorAll("[data-chart]")].filter(of);
    for (const place of places) {
      place.textContent = "";
      await drawIn(place);
      pointable(place);
      place.on("plotly_relayout", (change) => zoom(place, change));
      place.on("plotly_click", (event) => chooseAt(place, event));
      place.append(cursor());
    }
  }

  // A centred moving average, which never reaches across a gap, where a task was restarted.
  function smooth(trace) {
    if (trace.type !== "scatter" || trace.mode === "markers" || trace.fill === "toself") return;
    const half = Math.max(2, Math.round(trace.y.length / 40));
    const is = (n) => n >= 0 && n < trace.y.length && trace.y[n] !== null;
    const goesOn = (n) => is(n) && !(trace.x[n] < trace.x[n - 1]);
    trace.y = trace.y.map((y, n) => {
      if (y === null) return null;
      let reach = 0;
      while (reach < half && goesOn(n - reach) && is(n - reach - 1) && goesOn(n + reach + 1)) reach += 1;
      const near = trace.y.slice(n - reach, n + reach + 1);
      return near.reduce((sum, one) => sum + one, 0) / near.length;
    });
  }

  // What is not above zero has no place on such an axis: it is a gap.
  function logarithmic(chart) {
    for (const trace of chart.data) trace.y = trace.y.map((y) => (y > 0 ? y : null));
    Object.assign(chart.layout.yaxis, { type: "log", rangemode: "normal" });
  }

  // The stages of the fault that was clicked on: lines, with labels below each other.
  function addStages(chart) {
    const fault = chart.faults.find((one) => one.id === chosen);
    if (!fault) return;
    const style = getComputedStyle(root);
    const [begin, end] = fault.range;
    const line = { color: style.getPropertyValue("--text").trim(), width: 1 };
    chart.layout.shapes.push(...fault.stages.map(([, at]) => (
      { type: "line", xref: "x", yref: "paper", x0: at, x1: at, y0: 0, y1: 1, line })));
    chart.stages = fault.stages.map(([text, at], n) => ({
      text: `${text} ${at.toFixed(2)} s`, x: at, y: 1, yref: "paper", yanchor: "top",
      yshift: -16 * n, xanchor: at < begin + 0.7 * (end - begin) ? "left" : "right",
      showarrow: false, font: { color: line.color, size: 11 },
      bgcolor: style.getPropertyValue("--surface").trim(),
    }));
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
    for (const place of places) drawIn(place);
  }

  function print(on) {
    root.classList.toggle("printing", on);
    for (const place of places) {
      const half = place.closest(".panels figure:not(.whole)");
      drawIn(place, on ? (half ? (PRINTED - 16) / 2 : PRINTED) : undefined);
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
    for (const place of places) if (place.closest(".panels")) drawIn(place);
  }

  // Zooms every chart that counts the same; a double click shows all again.
  function zoom(place, change) {
    const counts = of(place).x;
    if (change["xaxis.range[0]"] !== undefined) {
      zoomTo(counts, [change["xaxis.range[0]"], change["xaxis.range[1]"]]);
    } else if (change["xaxis.range"]) {
      zoomTo(counts, change["xaxis.range"]);
    } else if (change["xaxis.autorange"]) {
      zoomTo(counts, null);
    }
  }

  // Shows a range in every chart that counts the same; null: all.
  function zoomTo(counts, range) {
    const alike = places.filter((one) => of(one).x === counts);
    const all = range && alike.length && of(alike[0]).layout.xaxis.range;
    if (range && !(range[0] === all[0] && range[1] === all[1])) zooms[counts] = [...range];
    else delete zooms[counts];
    if (!zooms[counts] && counts === "seconds") chosen = null;
    for (const one of alike) {
      const button = one.closest("figure")?.querySelector("[data-whole]");
      if (button) button.hidden = !zooms[counts];
    }
    return Promise.all(alike.map((one) => drawIn(one)));
  }

  // A click on the area of faults, or on one in the table, zooms to it and shows its stages.
  function choose(ids) {
    const place = places.find((one) => of(one).faults);
    const faults = place ? of(place).faults.filter((one) => ids.includes(one.id)) : [];
    if (!faults.length) return;
    chosen = faults[0].id;
    const begin = Math.min(...faults.map((one) => one.range[0]));
    zoomTo(of(place).x, [begin, Math.max(...faults.map((one) => one.range[1]))]);
  }

  function chooseAt(place, event) {
    const hit = event.points.find((one) => one.data.name === "faults" && one.data.customdata);
    if (hit) choose(hit.data.customdata[hit.pointNumber].map((n) => of(place).faults[n].id));
  }

  // A line at what the pointer is at, in every chart that counts the same.
  function point(place, event) {
    const { l: left, w: width } = place._fullLayout._size; // of the area of a plot
    const share = (event.clientX - place.getBoundingClientRect().left - left) / width;
    const [begin, end] = place.layout.xaxis.range;
    const counts = of(place).x;
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
    line.hidden = of(place).x !== counts || at < begin || at > end;
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

  function cursor() {
    const line = document.createElement("div");
    line.className = "cursor";
    line.hidden = true;
    line.setAttribute("aria-hidden", "true");
    line.append(document.createElement("span"));
    return line;
  }

  function pointable(place) {
    for (const kind of ["pointermove", "pointerdown"]) {
      place.addEventListener(kind, (event) => point(place, event));
    }
    place.addEventListener("pointerleave", (event) => {
      if (event.pointerType !== "touch") pointAt({}); // a finger leaves at once
    });
  }

  function press(button) {
    const what = `${button.dataset.switch} ${button.dataset.of}`;
    const on = !switched.delete(what);
    if (on) switched.add(what);
    button.setAttribute("aria-pressed", String(on));
    for (const place of places) if (place.dataset.chart === button.dataset.of) drawIn(place);
  }

  function showAll(button) {
    zoomTo(of(button.closest("figure").querySelector("[data-chart]")).x, null);
  }

  function goTo(button) {
    document.getElementById("timeline").scrollIntoView();
    choose([button.dataset.fault]);
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

  // --- What happened, and what was printed -------------------------------------------------------

  const printed = new Map(); // lines by the element that shows them

  // Shows the lines that have what is searched for, and how many.
  function search() {
    const wanted = document.querySelector("[data-search]").value.trim().toLowerCase();
    let found = 0;
    for (const [place, lines] of printed) {
      const fit = wanted ? lines.filter((line) => line.toLowerCase().includes(wanted)) : lines;
      const text = fit.join("\n");
      if (place.textContent !== text) place.textContent = text;
      const details = place.closest("details");
      if (wanted) {
        if (details.dataset.was === undefined) details.dataset.was = details.open ? "open" : "";
        details.open = fit.length > 0;
        found += fit.length;
      } else if (details.dataset.was !== undefined) {
        details.open = details.dataset.was === "open";
        delete details.dataset.was;
      }
    }
    const said = wanted ? `${found} ${found === 1 ? "line has" : "lines have"} it` : "";
    document.querySelector("[data-found]").textContent = said;
  }

  async function showOutputs() {
    const field = document.querySelector("[data-search]");
    if (!field) return;
    const story = document.querySelector('[data-lines=""]');
    printed.set(story, story.textContent.split("\n"));
    const outputs = JSON.parse(await unpacked("outputs"));
    for (const [name, lines] of Object.entries(outputs)) {
      printed.set(document.querySelector(`[data-lines="${CSS.escape(name)}"]`), lines);
    }
    search();
    field.addEventListener("input", search);
  }

  // Of many tasks: each has the names of all, which only packed are short.
  async function showEnvironments() {
    const found = JSON.parse(await unpacked("environments"));
    for (const place of document.querySelectorAll("[data-environment]")) {
      for (const [key, text] of Object.entries(found[place.dataset.environment] || {})) {
        const [name, value, lines] = ["dt", "dd", "pre"].map((tag) => document.createElement(tag));
        name.textContent = key;
        lines.textContent = text;
        value.append(lines);
        place.append(name, value);
      }
    }
  }

  async function start() {
    charts = JSON.parse(await unpacked("charts"));
    const script = document.createElement("script");
    script.textContent = await unpacked("plotly");
    document.head.append(script); // runs at once; the page's policy allows its hash
    if (document.getElementById("outputs")) await showOutputs();
    if (document.getElementById("environments")) await showEnvironments();
    await drawEach();
    addEventListener("pointerdown", (event) => {
      if (!event.target.closest("[data-chart]")) pointAt({});
    });
    dark.addEventListener("change", drawAll);
    addEventListener("beforeprint", () => print(true));
    addEventListener("afterprint", () => print(false));
    const acts = { series: toggle, save, switch: press, whole: showAll, fault: goTo };
    for (const [name, act] of Object.entries(acts)) {
      document.addEventListener("click", (event) => {
        const button = event.target.closest(`button[data-${name}]`);
        if (button) act(button);
      });
    }
    root.dataset.charts = "drawn";
  }

  start().catch((error) => {
    root.dataset.charts = "failed";
    for (const place of document.querySelectorAll("[data-chart]")) {
      if (!place.childElementCount) {
        place.textContent = `No chart: this browser can't draw it (${error}). Use a browser from 2023 or later.`;
      }
    }
  });
})();

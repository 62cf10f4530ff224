"use strict";
// The list of runs: it is told what has changed, filters, selects, and draws the curves of rows.
(() => {
  const rows = document.getElementById("rows");
  const filter = document.getElementById("filter");
  const verdict = document.getElementById("verdict");
  const compare = document.getElementById("compare");
  const SVG = "http://www.w3.org/2000/svg";
  const place = new URL(location.href);

  const runs = () => [...rows.querySelectorAll("tr[data-run]")];
  const rowOf = (id) => runs().find((row) => row.dataset.run === id);
  const picked = () => [...rows.querySelectorAll("input:checked")].map((box) => box.value);

  // --- What is shown

  function show() {
    const words = filter.value.toLowerCase().split(/\s+/).filter(Boolean);
    let count = 0;
    for (const row of runs()) {
      const text = row.textContent.toLowerCase();
      row.hidden =
        (verdict.value && row.dataset.verdict !== verdict.value) ||
        !words.every((word) => text.includes(word));
      if (!row.hidden) count += 1;
    }
    document.getElementById("count").textContent = `${count} of ${runs().length}`;
    document.getElementById("none").hidden = count > 0;
    for (const [key, value] of [["q", filter.value], ["verdict", verdict.value]]) {
      if (value) place.searchParams.set(key, value);
      else place.searchParams.delete(key);
    }
    history.replaceState(null, "", place);
  }

  function pick() {
    const count = picked().length;
    compare.disabled = count < 2;
    compare.textContent = count > 1 ? `Compare ${count} runs` : "Compare";
  }

  function compared() {
    const query = new URLSearchParams(picked().map((id) => ["run", id]));
    location.assign(`/compare?${query}`);
  }

  // --- The curve of a row, when it comes into view

  let wanted = new Set();
  let asking = false;
  const seen = new IntersectionObserver((entries) => {
    for (const entry of entries) {
      if (entry.isIntersecting) {
        seen.unobserve(entry.target);
        wanted.add(entry.target.dataset.spark);
      }
    }
    sparks();
  });

  async function sparks() {
    if (asking || !wanted.size) return;
    asking = true;
    try {
      const some = [...wanted].slice(0, 20);
      for (const id of some) wanted.delete(id);
      const answer = await fetch(`/sparks?${new URLSearchParams(some.map((id) => ["run", id]))}`);
      if (answer.ok) {
        for (const [id, spark] of Object.entries(await answer.json())) draw(rowOf(id), spark);
      }
    } catch {
      return; // the server has ended
    } finally {
      asking = false;
    }
    sparks();
  }

  function draw(row, { rates, faults }) {
    const cell = row && row.querySelector(".spark");
    if (!cell || !rates.length) return;
    const svg = element("svg", { viewBox: "0 0 100 24", preserveAspectRatio: "none" });
    svg.setAttribute("role", "img");
    const hits = faults.length ? `; ${faults.length} faults` : "";
    svg.setAttribute("aria-label", `Steps per second over time${hits}`);
    for (const at of faults) {
      svg.append(element("line", { x1: 100 * at, x2: 100 * at, y1: 0, y2: 24 }));
    }
    const step = 100 / Math.max(1, rates.length - 1);
    const points = rates.map((rate, n) => `${n * step},${23 - 22 * rate}`).join(" ");
    svg.append(element("polyline", { points }));
    cell.replaceChildren(svg);
  }

  function element(name, attributes) {
    const made = document.createElementNS(SVG, name);
    for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
    return made;
  }

  // --- What has changed

  async function refresh(ids) {
    const query = new URLSearchParams((ids || []).map((id) => ["run", id]));
    const answer = await fetch(ids ? `/rows?${query}` : "/rows?all=1");
    if (!answer.ok) return;
    const page = new DOMParser().parseFromString(
      `<table><tbody>${await answer.text()}</tbody></table>`, "text/html");
    const found = [...page.querySelectorAll("tr[data-run]")];
    const checked = new Set(picked());
    const focused = document.activeElement.closest?.("tr[data-run]")?.dataset.run;
    const held = document.activeElement.matches?.("input") ? "input" : "a";
    const names = new Set(found.map((row) => row.dataset.run));
    for (const row of runs()) {
      const id = row.dataset.run;
      if ((!ids || ids.includes(id)) && !names.has(id)) row.remove();
    }
    for (const row of found) {
      const old = rowOf(row.dataset.run);
      if (checked.has(row.dataset.run)) row.querySelector("input").checked = true;
      if (old) old.remove();
      const later = runs().find((other) => before(row, other));
      rows.insertBefore(row, later || rows.querySelector("tr[data-start]"));
      seen.observe(row.querySelector(".spark"));
    }
    for (const row of rows.querySelectorAll("tr[data-start]")) row.remove();
    for (const row of page.querySelectorAll("tr[data-start]")) {
      if (!rowOf(row.dataset.start)) rows.prepend(row);
    }
    if (focused) rowOf(focused)?.querySelector(held)?.focus();
    show();
    pick();
  }

  function before(row, other) {
    const live = other.dataset.live - row.dataset.live;
    return live ? live < 0 : Number(row.dataset.order) > Number(other.dataset.order);
  }

  // One request at a time: what changes meanwhile is asked for after it.
  let changed = new Set();
  let refreshing = false;
  async function told(ids) {
    for (const id of ids || []) changed.add(id);
    if (!ids) changed = null;
    if (refreshing) return;
    refreshing = true;
    try {
      while (changed === null || changed.size) {
        const some = changed === null ? null : [...changed].slice(0, 100);
        const rest = changed === null ? [] : [...changed].slice(100);
        changed = new Set(rest);
        await refresh(some);
      }
    } catch {
      // The server has ended; the stream opens again when another one answers.
    } finally {
      refreshing = false;
    }
  }

  let opened = false;
  const events = new EventSource("/events");
  events.addEventListener("open", () => {
    if (opened) told(null); // something may have been missed
    opened = true;
    document.documentElement.dataset.events = "open";
  });
  events.addEventListener("message", (event) => told(JSON.parse(event.data).runs));
  addEventListener("pagehide", () => events.close());

  // --- Keys

  function key(event) {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    if (event.target.matches("input[type=search], select, textarea")) {
      if (event.key === "Escape") event.target.blur();
      return;
    }
    const there = runs().filter((row) => !row.hidden);
    const at = there.indexOf(document.activeElement.closest("tr[data-run]"));
    const act = {
      "/": () => filter.focus(),
      j: () => there[Math.min(at + 1, there.length - 1)]?.querySelector("th a").focus(),
      k: () => there[Math.max(at - 1, 0)]?.querySelector("th a").focus(),
      x: () => there[at]?.querySelector("input").click(),
      c: () => compare.disabled || compared(),
    }[event.key];
    if (act) {
      event.preventDefault();
      act();
    }
  }

  filter.value = place.searchParams.get("q") || "";
  verdict.value = place.searchParams.get("verdict") || "";
  filter.addEventListener("input", show);
  verdict.addEventListener("change", show);
  rows.addEventListener("change", pick);
  compare.addEventListener("click", compared);
  addEventListener("keydown", key);
  for (const cell of rows.querySelectorAll("[data-spark]")) seen.observe(cell);
  show();
  pick();
})();

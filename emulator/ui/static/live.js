"use strict";
// The page of a run that goes on: it takes updates (see stream.js), draws only the charts that are in
// view, injects faults, and follows the output. When the run is over it becomes its report.
(() => {
  const root = document.documentElement;
  const byId = (id) => document.getElementById(id);
  const base = `/runs/${encodeURIComponent(byId("pulse").dataset.run)}/live`;
  const link = byId("link");
  const SHARE = 8; // a chart is drawn again after so many times the time that drawing it took
  const KEPT = 2000; // lines of output

  // --- Charts: the latest of each, drawn when it is in view, one after the other

  const latest = {};
  const stale = new Set();
  const notBefore = {};
  const inView = new Set();
  let drawing = false;
  const views = new IntersectionObserver((entries) => {
    for (const { target, isIntersecting } of entries) {
      inView[isIntersecting ? "add" : "delete"](target);
    }
    draw();
  }, { rootMargin: "100px" });
  const places = () => [...document.querySelectorAll("[data-chart]")];
  const pause = (ms) => new Promise((done) => setTimeout(done, ms));

  function watch() {
    for (const place of places()) {
      if (!place.dataset.watched) {
        place.dataset.watched = "yes";
        views.observe(place);
        if (latest[place.dataset.chart]) stale.add(place.dataset.chart);
      }
    }
    for (const gone of inView) if (!gone.isConnected) inView.delete(gone);
  }

  async function draw() {
    if (drawing || root.dataset.charts !== "drawn") return;
    drawing = true;
    try {
      for (;;) {
        const now = performance.now();
        const names = [...inView].map((place) => place.dataset.chart).filter((n) => stale.has(n));
        const due = names.find((name) => !(notBefore[name] > now));
        if (due === undefined) {
          if (!names.length) return;
          await pause(Math.min(...names.map((name) => notBefore[name])) - now + 1);
          continue;
        }
        stale.delete(due);
        await emulatePage.draw({ [due]: latest[due] });
        const took = performance.now() - now;
        notBefore[due] = performance.now() + SHARE * took;
        root.dataset.drawn = String(Number(root.dataset.drawn || 0) + 1);
        await pause(0); // what the user does comes first
      }
    } finally {
      drawing = false;
    }
  }

  // --- The rest of the page: only what differs is changed

  const keyOf = (node) => (node.nodeType === 1 ? node.id || node.dataset.chart || "" : "");

  function alike(one, other) {
    return one.nodeName === other.nodeName && keyOf(one) === keyOf(other);
  }

  function morph(old, fresh) {
    if (old.nodeType !== 1) {
      if (old.nodeValue !== fresh.nodeValue) old.nodeValue = fresh.nodeValue;
      return;
    }
    if (old.dataset.keep !== undefined || old.dataset.chart || old.dataset.environment) return;
    for (const { name, value } of fresh.attributes) {
      const own = ["open", "aria-pressed"].includes(name); // the user's
      if (!own && old.getAttribute(name) !== value) old.setAttribute(name, value);
    }
    for (const { name } of [...old.attributes]) {
      if (!fresh.hasAttribute(name) && name !== "open") old.removeAttribute(name);
    }
    const kept = [...old.childNodes];
    let at = 0;
    for (const child of [...fresh.childNodes]) {
      let found = kept.indexOf(kept.slice(at).find((one) => alike(one, child)), at);
      // Texts match the next text only; an element may have moved behind others that are gone.
      if (found > at && child.nodeType !== 1) found = alike(kept[at], child) ? at : -1;
      if (found < 0) {
        old.insertBefore(document.importNode(child, true), kept[at] || null);
        continue;
      }
      while (at < found) kept[at++].remove();
      morph(kept[at++], child);
    }
    while (at < kept.length) kept[at++].remove();
  }

  const PARTS = ["header.hero", "nav.contents", "main"];

  function replace(part, fresh) {
    const [old, other] = [document.querySelector(part), fresh.querySelector(part)];
    if (old && other) morph(old, other);
  }

  // --- What is so now

  let asked = false;

  function show(now) {
    byId("clock").textContent = `${now.t.toFixed(1)} s`;
    const pace = [now.step === null ? "no step yet" : `step ${now.step.toLocaleString("en")}`];
    if (now.rate !== null) pace.push(`${now.rate.toLocaleString("en")} steps/s`);
    byId("pace").textContent = pace.join(", ");
    const healable = {};
    for (const fault of now.faults) {
      for (const task of fault.in_force ? fault.tasks : []) (healable[task] ||= []).push(fault.id);
    }
    for (const row of document.querySelectorAll("#by-hand tr[data-task]")) {
      const task = now.tasks[row.dataset.task];
      if (!task) continue;
      put(row.querySelector(".state"), task.state);
      put(row.querySelector(".step"), task.step === null ? "" : task.step.toLocaleString("en"));
      const heal = row.querySelector("[data-heal]");
      heal.disabled = !healable[row.dataset.task];
      heal.dataset.heal = (healable[row.dataset.task] || []).join(" ");
    }
    if (byId("hands")) list(now.faults.filter((fault) => fault.entry));
    const { state } = root.dataset;
    root.dataset.state = now.crashed ? "crashed" : now.state;
    if (state === "crashed" && !now.crashed) read(); // which has ended with its emulator
    if (now.crashed) {
      lost("the emulator of this run was killed; `emulate attach` takes it over, where its engine can");
    } else {
      link.classList.remove("lost");
      put(link, now.state);
    }
    if (!asked && now.state === "running" && byId("by-hand")) {
      asked = true;
      whatIsRefused();
    }
  }

  function put(place, text) {
    if (place.textContent !== text) place.textContent = text;
  }

  function lost(why) {
    link.classList.add("lost");
    put(link, why);
  }

  function list(faults) {
    const places = new Map([...byId("hands").children].map((one) => [one.dataset.fault, one]));
    for (const fault of faults) {
      let item = places.get(fault.id);
      if (!item) {
        item = document.createElement("li");
        item.dataset.fault = fault.id;
        const words = document.createElement("span");
        const copy = document.createElement("button");
        Object.assign(copy, { type: "button", className: "button", textContent: "copy as scenario" });
        copy.setAttribute("aria-label", `copy ${fault.id} as scenario`);
        copy.dataset.copy = "";
        item.append(words, " ", copy); // beside it, when asked for, the entry
        byId("hands").append(item);
      }
      const reason = fault.reason ? `: ${fault.reason}` : "";
      put(item.firstChild, `${fault.id}: ${fault.what}, ${fault.stage}${reason}`);
      item.dataset.entry = fault.entry;
      const written = item.querySelector("pre");
      if (written) put(written, fault.entry);
    }
  }

  // --- Faults by hand

  async function ask(method, path, body) {
    const headers = { "x-emulate-ui": "live" };
    if (body) headers["content-type"] = "application/json";
    try {
      const got = await fetch(base + path, { method, headers, body: body && JSON.stringify(body) });
      const said = got.ok ? await got.json() : { refused: (await got.text()).trim() };
      return said.refused === undefined ? [true, said] : [false, said.refused];
    } catch {
      return [false, "`emulate ui` does not answer."];
    }
  }

  function say(text, refused) {
    const answer = byId("answer");
    answer.classList.toggle("refused", refused);
    answer.textContent = text;
  }

  async function inject(button) {
    const target = button.closest("tr").dataset.task;
    const { kind } = button.dataset;
    const options = {};
    for (const field of document.querySelectorAll("#by-hand [data-option]")) {
      if (field.dataset.kinds.split(" ").includes(kind) && field.value.trim()) {
        options[field.dataset.option] = field.value;
      }
    }
    const pair = button.closest(".pair");
    const other = pair ? pair.querySelector("select").value : "";
    say(`${kind} ${target}…`, false);
    const [ok, said] = await ask("POST", "/faults", { kind, target, other, options });
    say(ok ? `${said.faults.join(", ")}: ${kind} ${target}${other && ` from ${other}`}` : said, !ok);
  }

  async function heal(button) {
    for (const fault of button.dataset.heal.split(" ")) {
      const [ok, said] = await ask("DELETE", `/faults/${encodeURIComponent(fault)}`);
      say(ok ? `healing ${said.healed.join(", ")}` : said, !ok);
    }
  }

  async function copy(item) {
    const { entry } = item.dataset;
    let written = item.querySelector("pre");
    if (!written) {
      written = document.createElement("pre");
      item.append(written);
    }
    written.textContent = entry;
    try {
      await navigator.clipboard.writeText(entry);
      say("copied: an entry of `faults:`", false);
    } catch {
      say("the browser does not let this page copy: take the lines below", false);
    }
  }

  async function whatIsRefused() {
    const [ok, why] = await ask("GET", "/refused");
    for (const button of ok ? document.querySelectorAll("#by-hand [data-kind]") : []) {
      button.classList.toggle("refused", button.dataset.kind in why);
      button.title = why[button.dataset.kind] || "";
    }
    if (!ok) asked = false;
  }

  document.addEventListener("click", (event) => {
    const button = event.target.closest("#by-hand button");
    if (!button) return;
    if (button.dataset.kind) inject(button);
    else if (button.dataset.heal) heal(button);
    else if (button.dataset.copy !== undefined) copy(button.closest("li"));
  });

  // --- The output

  const output = byId("output");
  const lines = byId("lines");
  let printed;

  const words = () => byId("search").value.toLowerCase();

  function fits(line, text) {
    line.hidden = text !== "" && !line.textContent.toLowerCase().includes(text);
  }

  function search() {
    const text = words();
    for (const line of lines.children) fits(line, text);
    count();
  }

  function count() {
    const all = lines.childElementCount;
    const hidden = lines.querySelectorAll("div[hidden]").length;
    put(byId("found"), words() ? `${all - hidden} of the last ${all} lines` : `${all} lines`);
    if (byId("follow").checked) lines.scrollTop = lines.scrollHeight;
  }

  function add(update) {
    const text = words();
    const some = document.createDocumentFragment();
    const one = (task, said) => {
      const line = document.createElement("div");
      const head = document.createElement("b");
      head.textContent = task ? `${task} | ` : "";
      line.append(head, said);
      fits(line, text);
      some.append(line);
    };
    if (update.left_out) one("", `… ${update.left_out} lines are only in the log`);
    for (const [task, said] of update.lines) one(task, said);
    lines.append(some);
    while (lines.childElementCount > KEPT) lines.firstChild.remove();
    count();
  }

  function read() {
    if (printed) printed();
    printed = undefined;
    lines.textContent = "";
    if (!output.open) return;
    const end = emulateStream(`${base}/lines?${new URLSearchParams({ task: byId("of").value })}`, {
      begin: () => (lines.textContent = ""), // again from the beginning
      take: (update) => (update.over ? end() : add(update)),
      lost: () => {}, // the page itself says so
    });
    printed = end;
  }

  output.addEventListener("toggle", read);
  byId("of").addEventListener("change", read);
  byId("search").addEventListener("input", search);
  byId("follow").addEventListener("change", count);

  // --- Updates

  // One after the other, each as a task of its own, so that the page answers its user in between.
  let last = Promise.resolve();

  function then(act) {
    last = last.then(() => pause(0)).then(act);
  }

  function take(update) {
    if (update.html) {
      let fresh;
      then(() => {
        fresh = new DOMParser().parseFromString(update.html, "text/html");
        document.title = fresh.title;
      });
      for (const part of PARTS) then(() => replace(part, fresh));
    }
    then(() => put_in(update));
  }

  function put_in(update) {
    for (const [name, chart] of Object.entries(update.charts || {})) {
      latest[name] = chart;
      stale.add(name);
    }
    if (update.now) show(update.now);
    if (update.failed) lost(update.failed);
    if (update.over) {
      end();
      location.reload(); // the run has its report now
      return;
    }
    watch();
    draw();
  }

  const end = emulateStream(`${base}/events`, {
    begin: () => {},
    take,
    lost: (why) => then(() => lost(why)),
  });
  emulatePage.ready.then(draw);
})();

"use strict";
// The form: the plan of what it says, and the run. What the server refuses is shown in its words.
(() => {
  const form = document.getElementById("form");
  const said = document.getElementById("said");
  const planned = document.getElementById("planned");
  const go = document.getElementById("go");
  let shown = ""; // the form whose plan is shown

  const filled = () =>
    JSON.stringify({
      scenario: form.elements.scenario.value,
      sets: form.elements.sets.value.split("\n"),
      engine: form.elements.engine.value,
    });

  async function send(path) {
    said.hidden = true;
    const body = filled();
    const answer = await fetch(path, { method: "POST", body, headers: { "X-Emulate-UI": "1" } });
    if (answer.ok) return { body, ...(await answer.json()) };
    say(await answer.text());
    return null;
  }

  function say(text) {
    said.textContent = text;
    said.hidden = false;
  }

  function changed() {
    go.disabled = filled() !== shown;
  }

  async function plan() {
    const answer = await send("/plan");
    planned.hidden = !answer;
    planned.textContent = answer ? answer.plan : "";
    shown = answer ? answer.body : "";
    changed();
  }

  async function start() {
    go.disabled = true;
    const answer = await send("/start");
    if (answer) location.assign("/");
    else changed();
  }

  const safely = (call) => call().catch(() => say("The server does not answer: it has ended."));
  form.addEventListener("input", changed);
  document.getElementById("plan").addEventListener("click", () => safely(plan));
  form.addEventListener("submit", (event) => {
    event.preventDefault();
    if (!go.disabled) safely(start);
    else safely(plan); // Enter in a field
  });
})();

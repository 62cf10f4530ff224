"use strict";
// The page of a run that is not there yet: it is loaded again when it is.
(() => {
  const { run } = document.querySelector("[data-run]").dataset;
  const events = new EventSource("/events");
  // It may have come between this page and the stream, or while the stream was broken.
  events.addEventListener("open", async () => {
    const answer = await fetch(`/rows?run=${encodeURIComponent(run)}`);
    if (answer.ok && (await answer.text()).includes(`data-run="${run}"`)) location.reload();
  });
  events.addEventListener("message", (event) => {
    if (JSON.parse(event.data).runs.includes(run)) location.reload();
  });
  addEventListener("pagehide", () => events.close());
})();

"use strict";
// A scenario's runs: the page is loaded again when one of them has changed, or a new one is there.
(() => {
  const { scenario } = document.querySelector("main").dataset;
  const events = new EventSource("/events");
  const here = [...document.querySelectorAll("a[href^='/runs/']")].map((a) =>
    a.getAttribute("href").split("/")[2], // also of a drawing, whose links have no path
  );
  events.addEventListener("message", (event) => {
    const { runs } = JSON.parse(event.data);
    if (runs.some((id) => here.includes(id) || id.startsWith(`${scenario}-`))) location.reload();
  });
  addEventListener("pagehide", () => events.close());
})();

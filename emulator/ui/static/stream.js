"use strict";
// Updates from this server, however often it has to be connected to. Unlike an EventSource, a stream says
// why it was refused, and begins again when it is let in: as when `emulate ui` was started again, and its
// new address was opened in another page of this browser.
//
// `emulateStream(path, { begin, take, lost })` calls `begin()` when a connection is there, `take(update)`
// with each update, and `lost(why)` when the connection has ended or there is none. It returns a function
// that ends the stream.
const emulateStream = (() => {
  const AGAIN = 1000; // ms between two tries

  async function* updates(body) {
    const reader = body.pipeThrough(new TextDecoderStream()).getReader();
    for (let rest = ""; ; ) {
      const { done, value } = await reader.read();
      if (done) return;
      const parts = (rest + value).split("\n\n");
      rest = parts.pop();
      for (const part of parts) if (part.startsWith("data: ")) yield JSON.parse(part.slice(6));
    }
  }

  async function connect(path, signal, { begin, take }) {
    const answer = await fetch(path, { signal });
    if (!answer.ok) {
      const ours = (answer.headers.get("content-type") || "").startsWith("text/plain");
      return ours ? (await answer.text()).trim() : ""; // else something else has the port
    }
    begin();
    for await (const update of updates(answer.body)) if (!signal.aborted) take(update);
    return "";
  }

  return (path, told) => {
    const ended = new AbortController();
    (async () => {
      while (!ended.signal.aborted) {
        // A server that has ended, or that is not there yet, is no answer.
        const why = await connect(path, ended.signal, told).catch(() => "");
        if (ended.signal.aborted) return;
        told.lost(why || "connecting again");
        await new Promise((done) => setTimeout(done, AGAIN));
      }
    })();
    return () => ended.abort();
  };
})();

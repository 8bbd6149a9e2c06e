// A widget's traits, as its parts use them; what listens is taken off with the view.

export function watching(model) {
  const ends = [];
  return {
    get: (name) => model.get(name),
    set(values) {
      model.set(values);
      model.save_changes();
    },
    send: (content) => model.send(content),
    /** Call `handler` now, and whenever one of the traits changes. */
    on(names, handler) {
      for (const name of names) {
        model.on(`change:${name}`, handler);
        ends.push(() => model.off(`change:${name}`, handler));
      }
      handler();
    },
    onMessage(handler) {
      model.on("msg:custom", handler);
      ends.push(() => model.off("msg:custom", handler));
    },
    atEnd: (end) => ends.push(end),
    end: () => ends.splice(0).forEach((end) => end()),
  };
}

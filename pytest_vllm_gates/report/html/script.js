"use strict";
// Search, filters and copying. The page says all it has to say without them.
(() => {
  const find = document.getElementById("find");
  const entries = [...document.querySelectorAll("details.entry")];

  function filters() {
    const text = document.getElementById("find-text");
    const selects = ["family", "gate", "outcome"].map((name) => document.getElementById("find-" + name));
    const count = document.getElementById("find-count");
    const texts = new Map();
    let opened = [];

    const textOf = (entry) => {
      if (!texts.has(entry)) texts.set(entry, entry.textContent.toLowerCase());
      return texts.get(entry);
    };

    function apply() {
      const words = text.value.toLowerCase().split(/\s+/).filter(Boolean);
      const active = words.length > 0 || selects.some((select) => select.value);
      let shown = 0, all = 0;
      for (const entry of entries) {
        const data = [entry.dataset.family, entry.dataset.gate, entry.dataset.outcome];
        const named = [...data, ""].join(" ").toLowerCase();
        const matches = selects.every((select, at) => !select.value || select.value === data[at])
          && words.every((word) => named.includes(word) || textOf(entry).includes(word));
        entry.hidden = !matches;
        const tests = Number(entry.dataset.tests) || 1;
        all += tests;
        shown += matches ? tests : 0;
      }
      for (const fold of opened) fold.open = false;
      opened = [];
      for (const block of document.querySelectorAll(".gate-tests, .others, .blocked-gates, section.family")) {
        const hit = block.querySelector("details.entry:not([hidden])");
        block.hidden = active && !hit;
        if (active && hit && block.matches("details") && !block.open) {
          block.open = true;
          opened.push(block);
        }
      }
      count.textContent = active ? `${shown} of ${all} tests` : `${all} tests`;
    }

    let waiting = 0;
    text.addEventListener("input", () => {
      clearTimeout(waiting);
      waiting = setTimeout(apply, 120);
    });
    for (const select of selects) select.addEventListener("change", apply);
    find.hidden = false;
    apply();
  }

  async function copy(button, text) {
    let done = true;
    try {
      await navigator.clipboard.writeText(text);
    } catch {
      // Some browsers give a page from disk no clipboard: select it, and copy as people do.
      const range = document.createRange();
      range.selectNodeContents(button.parentElement.querySelector("pre"));
      getSelection().removeAllRanges();
      getSelection().addRange(range);
      done = document.execCommand("copy");
    }
    button.textContent = done ? "Copied" : "Selected";
    setTimeout(() => { button.textContent = "Copy"; }, 1500);
  }

  for (const box of document.querySelectorAll(".copyable")) {
    const button = document.createElement("button");
    button.type = "button";
    button.className = "copy";
    button.textContent = "Copy";
    button.addEventListener("click", () => copy(button, box.querySelector("pre").textContent));
    box.append(button);
  }

  // A link to a test opens it, and whatever it is folded into.
  function openTarget() {
    let target = null;
    try {
      target = document.getElementById(decodeURIComponent(location.hash.slice(1)));
    } catch {
      return;  // a hash that is no text
    }
    for (let at = target; at; at = at.parentElement) if (at.matches("details")) at.open = true;
    if (target) target.scrollIntoView();
  }
  addEventListener("hashchange", openTarget);

  if (find) filters();
  openTarget();
})();

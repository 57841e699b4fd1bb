// The command palette: Ctrl+K lists the pages, channels, sinks and consumers whose names contain each typed word.
"use strict";

(() => {
    const button = document.getElementById("palette");
    if (!button) return;

    const show = async () => {
        if (document.querySelector("dialog[open]")) return;
        const palette = document.createElement("dialog");
        palette.className = "palette";
        palette.setAttribute("aria-labelledby", "goal-label");
        palette.innerHTML = '<label id="goal-label" for="goal">Go to</label><input id="goal" type="text" role="combobox" aria-expanded="true"'
            + ' aria-controls="goals" aria-autocomplete="list" autocomplete="off" spellcheck="false" placeholder="Page, channel, sink or consumer">'
            + '<div id="goals" role="listbox" aria-labelledby="goal-label"></div><p class="note" role="status"></p>'
            + '<p class="note keys"><span><kbd>↑</kbd> <kbd>↓</kbd> choose</span><span><kbd>Enter</kbd> open</span><span><kbd>Esc</kbd> close</span></p>';
        const [, field, list, note] = palette.children;
        const shown = () => [...list.children].filter((option) => !option.hidden);
        const choose = (chosen) => {
            for (const option of list.children) option.ariaSelected = String(option === chosen);
            field.setAttribute("aria-activedescendant", chosen?.id ?? "");
            chosen?.scrollIntoView({ block: "nearest" });
        };
        const filter = () => {
            const typed = field.value.trim();
            const words = typed.toLowerCase().split(/\s+/);
            for (const option of list.children) {
                if (option.id === "destination-search") {
                    option.hidden = typed === "";
                    option.href = `/?q=${encodeURIComponent(typed)}`;
                    option.querySelector("bdi").textContent = typed;
                } else {
                    option.hidden = !words.every((word) => option.textContent.toLowerCase().includes(word));
                }
            }
            choose(shown()[0]);
            note.textContent = shown().length === 0 && list.children.length > 0 ? "Nothing has such a name." : "";
        };
        field.addEventListener("input", filter);
        field.addEventListener("keydown", (event) => {
            const options = shown();
            const at = options.findIndex((option) => option.ariaSelected === "true");
            const by = { ArrowDown: 1, ArrowUp: -1 }[event.key];
            if (by && options.length > 0) choose(options[(at + by + options.length) % options.length]);
            else if (event.key === "Enter") options[at]?.click();
            else return;
            event.preventDefault();
        });
        // A link to a part of this page does not load a page.
        list.addEventListener("click", () => palette.close());
        palette.addEventListener("click", (event) => { if (event.target === palette) palette.close(); });
        palette.addEventListener("close", () => palette.remove());
        document.body.append(palette);
        palette.showModal();
        try {
            const answer = await fetch("/destinations");
            if (!answer.ok) throw new Error(answer.statusText);
            list.innerHTML = await answer.text();
            filter();
        } catch {
            note.textContent = "The console does not answer.";
        }
    };

    button.hidden = false;
    button.addEventListener("click", show);
    document.addEventListener("keydown", (event) => {
        const isShortcut = event.key.toLowerCase() === "k" && (event.ctrlKey || event.metaKey) && !event.altKey && !event.shiftKey;
        if (!isShortcut) return;
        event.preventDefault();
        show();
    });
})();

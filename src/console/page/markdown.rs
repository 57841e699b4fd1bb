//! Shows the documents of the program, which are Markdown.

use maud::{Markup, PreEscaped, html};
use pulldown_cmark::{Event, Options, Parser, Tag, TagEnd, html::push_html};

/// Renders a text of the runbook or of the concepts. `keeps_headings` says whether the text is the content of a page. In another text,
/// headings are bold, because their level depends on the place of the text. Links to other sections are their labels only: the
/// console has no page for a section.
pub(super) fn markdown(text: &str, keeps_headings: bool) -> Markup {
    let html = |html: &'static str| Some(Event::Html(html.into()));
    let events = Parser::new_ext(text, Options::ENABLE_TABLES).filter_map(|event| match event {
        Event::Start(Tag::Link { .. }) | Event::End(TagEnd::Link) => None,
        Event::Start(Tag::Heading { .. }) if !keeps_headings => html("<p><strong>"),
        Event::End(TagEnd::Heading(_)) if !keeps_headings => html("</strong></p>"),
        // A keyboard can scroll what can be focused.
        Event::Start(Tag::CodeBlock(_)) => html("<pre class=\"runbook\" tabindex=\"0\"><code>"),
        Event::End(TagEnd::CodeBlock) => html("</code></pre>"),
        event => Some(event),
    });
    let mut rendered = String::new();
    push_html(&mut rendered, events);
    html! { div.document { (PreEscaped(rendered)) } }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn marks_become_elements_and_links_their_labels() {
        let text = "## Words\n\n* **cursor:** See [Restore](#restore) and `a <b>`.\n\n```sh\nrun --x\n```\n\n| a | b |\n|---|---|\n| 1 | 2 |\n";
        let shown = markdown(text, true).into_string();
        assert!(
            shown.contains("<h2>Words</h2>") && shown.contains("<strong>cursor:</strong> See Restore and <code>"),
            "{shown}"
        );
        assert!(
            shown.contains("<code>a &lt;b&gt;</code>") && shown.contains("tabindex=\"0\"><code>run --x"),
            "{shown}"
        );
        assert!(
            shown.contains("<td>1</td>") && !shown.contains("**") && !shown.contains("](") && !shown.contains("```")
        );
        assert!(markdown(text, false).into_string().contains("<p><strong>Words</strong></p>"));
    }

    #[test]
    fn no_mark_is_left_in_any_topic() {
        for topic in operator::runbook::topics() {
            let shown = markdown(&topic.markdown(), false).into_string();
            assert!(
                !shown.contains("**") && !shown.contains("](#") && !shown.contains("|---"),
                "{:?}: {shown}",
                topic.names
            );
        }
    }
}

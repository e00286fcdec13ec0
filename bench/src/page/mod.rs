//! A report as one page for a browser: charts, the tables that a terminal shows, and the figures themselves. Nothing is fetched from elsewhere.

mod chart;

use std::fmt::{self, Display, Write as _};

pub(crate) use chart::{Bar, Chart, Curve, Point};

/// What stands together on a page.
pub(crate) struct Section {
    /// Those without a figure are left out.
    pub charts: Vec<Chart>,
    /// As a terminal shows it.
    pub text: String,
}

/// The page, with the report's JSON form in it (an element of the type `application/json`).
pub(crate) fn write(title: &str, under_it: &str, sections: &[Section], json: &str) -> String {
    let (title, under_it) = (Escaped(title), Escaped(under_it));
    let mut page = format!(
        "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n<title>{title}</title>\n<style>{STYLE}</style>\n</head>\n\
         <body>\n<h1>{title}</h1>\n<p>{under_it}</p>\n"
    );
    for section in sections {
        page += "<div class=\"charts\">\n";
        section.charts.iter().filter_map(Chart::to_svg).for_each(|svg| page += &svg);
        // Writing to a string does not fail.
        let _ = writeln!(page, "</div>\n<pre>{}</pre>", Escaped(section.text.trim()));
    }
    // Only `</script` and `<!--` would end or change what it is in; in strings, where alone they can stand, this is the same.
    let json = json.replace('<', "\\u003c");
    page + "<script type=\"application/json\" id=\"report\">\n" + &json + "</script>\n</body>\n</html>\n"
}

/// A text in HTML.
struct Escaped<'a>(&'a str);

impl Display for Escaped<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.chars().try_for_each(|c| match c {
            '<' => f.write_str("&lt;"),
            '>' => f.write_str("&gt;"),
            '&' => f.write_str("&amp;"),
            '"' => f.write_str("&quot;"),
            c => f.write_char(c),
        })
    }
}

const STYLE: &str = "\
body{font:15px sans-serif;margin:2em;color:#222;background:#fff}\
.charts{display:flex;flex-wrap:wrap;gap:1em;align-items:flex-start}\
.charts svg{border:1px solid #ddd;max-width:100%}\
pre{overflow-x:auto;line-height:1.25}";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_others_have_named_does_not_leave_its_place() {
        let name = "<b>&\"</b></script><!--";
        let bar = Bar { name: name.to_owned(), value: 1.0, range: None, label: name.to_owned() };
        let charts = vec![Chart::Bars { title: name.to_owned(), bars: vec![bar] }];
        let json = serde_json::to_string(name).unwrap();
        let page = write(name, name, &[Section { charts, text: name.to_owned() }], &json);
        assert!(!page.contains("<b>") && !page.contains("<!--") && page.matches("</script").count() == 1, "{page}");
        let (_, behind) = page.split_once("id=\"report\">\n").unwrap();
        let (figures, _) = behind.split_once("</script>").unwrap();
        assert_eq!(serde_json::from_str::<String>(figures).unwrap(), name);
    }
}

#include "bin/html/page.h"

#include "model/ckpt/figure.h"

#include <string.h>

/* The colours have at least 3:1 against their surface in both schemes. Under
 * protanopia, deuteranopia and tritanopia (Machado's matrices) any two but the
 * grey are 15 or more apart in CIE Lab. */
static const char style[] =
    ":root{color-scheme:light dark;--surface:#fcfcfb;--card:#fff;"
    "--ink:#191917;--soft:#5c5b56;--line:#dedcd5;--grid:#eceae4;"
    "--c0:#2a78d6;--c1:#c93a1e;--c2:#1a9c70;--c3:#c48600;--c4:#5f2a86;"
    "--c5:#6b6a64}\n"
    "@media(prefers-color-scheme:dark){:root{--surface:#161615;"
    "--card:#1f1f1d;--ink:#f1efe8;--soft:#b3b1a8;--line:#3b3a36;"
    "--grid:#2b2a27;--c0:#4c96f0;--c1:#e4572e;--c2:#22b57f;--c3:#eab43c;"
    "--c4:#d9b3f7;--c5:#96948b}}\n"
    "*{box-sizing:border-box}\n"
    "body{margin:0;background:var(--surface);color:var(--ink);"
    "font:15px/1.5 system-ui,-apple-system,\"Segoe UI\",Roboto,"
    "\"DejaVu Sans\",sans-serif}\n"
    "main{max-width:1040px;margin:0 auto;padding:32px 24px 48px}\n"
    "h1{font-size:26px;line-height:1.25;margin:0 0 4px}\n"
    "h2{font-size:18px;margin:36px 0 2px}\n"
    "p{margin:4px 0 12px}\n"
    ".sub,.about,figcaption .unit,footer{color:var(--soft)}\n"
    ".about{max-width:46em}\n"
    ".answer{border-left:4px solid var(--c0);padding:10px 16px;"
    "margin:12px 0;background:var(--card);max-width:60em;"
    "break-inside:avoid}\n"
    ".tiles{display:grid;gap:12px;margin:20px 0;"
    "grid-template-columns:repeat(auto-fit,minmax(150px,1fr))}\n"
    ".tile{background:var(--card);border:1px solid var(--line);"
    "border-radius:6px;padding:10px 14px}\n"
    ".tile b{display:block;font-size:22px;font-weight:600;"
    "font-variant-numeric:tabular-nums}\n"
    ".tile span{color:var(--soft);font-size:13px}\n"
    ".stack{display:flex;gap:2px;height:30px;margin:6px 0 8px}\n"
    ".stack i{display:block;min-width:2px;border-radius:3px}\n"
    ".legend{display:flex;flex-wrap:wrap;gap:4px 18px;font-size:13px;"
    "color:var(--soft);margin:0 0 10px;padding:0;list-style:none}\n"
    ".legend i{display:inline-block;width:11px;height:11px;"
    "border-radius:2px;margin-right:6px;vertical-align:-1px}\n"
    ".legend b{color:var(--ink);font-weight:600}\n"
    ".bars{display:grid;grid-template-columns:max-content 1fr;"
    "gap:4px 12px;align-items:center;font-size:13px;margin:10px 0}\n"
    ".bars .name{text-align:right;color:var(--soft)}\n"
    ".bars .row{display:flex;align-items:center;gap:8px}\n"
    ".bars i{display:block;height:14px;border-radius:3px;min-width:2px}\n"
    ".bars .row span{white-space:nowrap}\n"
    ".pair{display:grid;grid-template-columns:1fr 1fr;gap:0 24px}\n"
    "figure{margin:14px 0;break-inside:avoid}\n"
    "figcaption{font-size:14px;font-weight:600;margin-bottom:2px}\n"
    "figcaption .unit{font-weight:400;font-size:13px}\n"
    "svg.chart{display:block;width:100%;overflow:visible}"
    "svg.chart svg{overflow:visible}"
    "svg path{vector-effect:non-scaling-stroke}\n"
    "svg.key{display:inline-block;width:26px;height:12px;margin-right:6px;"
    "vertical-align:-1px}\n"
    "svg text{font-size:12px;fill:var(--soft);"
    "font-variant-numeric:tabular-nums}\n"
    "@media(max-width:900px){.pair{grid-template-columns:1fr}}"
    "@media(max-width:720px){main{padding:20px 14px}.t2{display:none}}"
    "@media(max-width:420px){.t1{display:none}}\n"
    "svg .grid{stroke:var(--grid)}svg .axis{stroke:var(--line)}\n"
    "svg .rule{stroke:var(--ink);stroke-dasharray:5 4}\n"
    "svg .point{stroke:var(--ink);stroke-width:1.5}\n"
    "svg .col{stroke:var(--surface);stroke-width:.6}\n"
    "svg .hit{fill:transparent}svg .hit:hover{fill:var(--ink);"
    "fill-opacity:.08}\n"
    "svg .mark{stroke:var(--surface);stroke-width:2}\n"
    "details{margin:8px 0}summary{cursor:pointer;font-weight:600}\n"
    "table{border-collapse:collapse;font-size:13px;margin:8px 0}\n"
    "td{border-bottom:1px solid var(--line);padding:3px 20px 3px 0}\n"
    "td:last-child{text-align:right;font-variant-numeric:tabular-nums}\n"
    "footer{margin-top:40px;font-size:13px;"
    "border-top:1px solid var(--line);padding-top:10px}\n"
    "@page{margin:12mm}\n"
    "@media print{body{font-size:11px;background:none}"
    "main{padding:0 2px;max-width:none}h1{font-size:19px}.t2{display:none}"
    "h2{font-size:14px;margin-top:16px}h2,.about{break-after:avoid}"
    ".tile b{font-size:16px}.tile,.answer{background:none}"
    "*{print-color-adjust:exact;-webkit-print-color-adjust:exact}"
    ".pair{grid-template-columns:1fr 1fr}}\n";

void page_text(FILE *f, const char *text)
{
    for (; *text; text++)
        switch (*text) {
        case '<':
            fputs("&lt;", f);
            break;
        case '>':
            fputs("&gt;", f);
            break;
        case '&':
            fputs("&amp;", f);
            break;
        case '"':
            fputs("&quot;", f);
            break;
        default:
            if ((unsigned char)*text >= ' ')
                fputc(*text, f);
        }
}

void page_begin(FILE *f, const char *title, const char *subtitle)
{
    fputs("<!doctype html>\n<html lang=\"en\">\n<meta charset=\"utf-8\">\n"
          "<meta name=\"viewport\" content=\"width=device-width\">\n<title>",
          f);
    page_text(f, title);
    fprintf(f, "</title>\n<style>\n%s</style>\n<main>\n<h1>", style);
    page_text(f, title);
    fputs("</h1>\n<p class=\"sub\">", f);
    page_text(f, subtitle);
    fputs("</p>\n", f);
}

void page_end(FILE *f, const char *footer)
{
    fputs("<footer>", f);
    page_text(f, footer);
    fputs("</footer>\n</main>\n</html>\n", f);
}

void page_section(FILE *f, const char *title, const char *about)
{
    fputs("<h2>", f);
    page_text(f, title);
    fputs("</h2>\n<p class=\"about\">", f);
    page_text(f, about);
    fputs("</p>\n", f);
}

void page_answer(FILE *f, const char *bold, const char *text)
{
    fputs("<div class=\"answer\"><b>", f);
    page_text(f, bold);
    fputs("</b>", f);
    while (*text) { /* each line its own */
        char line[1024];
        size_t n = strcspn(text, "\n");
        snprintf(line, sizeof line, "%.*s", (int)n, text);
        fputs("<br>", f);
        page_text(f, line);
        text += text[n] ? n + 1 : n;
    }
    fputs("</div>\n", f);
}

void page_tiles(FILE *f, const struct page_tile *tiles, uint32_t n)
{
    fputs("<div class=\"tiles\">\n", f);
    for (uint32_t i = 0; i < n; i++) {
        fputs("<div class=\"tile\"><b>", f);
        page_text(f, tiles[i].value);
        fputs("</b><span>", f);
        page_text(f, tiles[i].label);
        fputs("</span></div>\n", f);
    }
    fputs("</div>\n", f);
}

static double sum_of(const struct page_part *parts, uint32_t n)
{
    double sum = 0;
    for (uint32_t i = 0; i < n; i++)
        sum += parts[i].value;
    return sum > 0 ? sum : 1;
}

void page_stack(FILE *f, const char *about, const struct page_part *parts,
                uint32_t n)
{
    double sum = sum_of(parts, n);
    fputs("<figure><figcaption>", f);
    page_text(f, about);
    fputs("</figcaption><div class=\"stack\">", f);
    for (uint32_t i = 0; i < n; i++) {
        if (parts[i].value <= 0)
            continue;
        fprintf(f, "<i style=\"flex:%.4f;background:var(--c%d)\" title=\"",
                parts[i].value / sum, parts[i].color);
        page_text(f, parts[i].name);
        fputs(": ", f);
        page_text(f, parts[i].text);
        fputs("\"></i>", f);
    }
    fputs("</div><ul class=\"legend\">", f);
    for (uint32_t i = 0; i < n; i++) {
        fprintf(f, "<li><i style=\"background:var(--c%d)\"></i>",
                parts[i].color);
        page_text(f, parts[i].name);
        fputs(" <b>", f);
        page_text(f, parts[i].text);
        fprintf(f, "</b> %s %%</li>",
                figure_percent(parts[i].value / sum).text);
    }
    fputs("</ul></figure>\n", f);
}

void page_bars(FILE *f, const struct page_part *parts, uint32_t n)
{
    double max = 0;
    for (uint32_t i = 0; i < n; i++)
        max = parts[i].value > max ? parts[i].value : max;
    fputs("<div class=\"bars\">\n", f);
    for (uint32_t i = 0; i < n; i++) {
        fputs("<span class=\"name\">", f);
        page_text(f, parts[i].name);
        fprintf(f,
                "</span><span class=\"row\"><i style=\"width:%.2f%%;"
                "background:var(--c%d)\"></i><span>",
                max > 0 ? 80 * parts[i].value / max : 0, parts[i].color);
        page_text(f, parts[i].text);
        fputs("</span></span>\n", f);
    }
    fputs("</div>\n", f);
}

void page_table(FILE *f, const char *title, const struct page_row *rows,
                uint32_t n)
{
    fputs("<details><summary>", f);
    page_text(f, title);
    fputs("</summary><table>\n", f);
    for (uint32_t i = 0; i < n; i++) {
        fputs("<tr><td>", f);
        page_text(f, rows[i].name);
        fputs("</td><td>", f);
        page_text(f, rows[i].value);
        fputs("</td></tr>\n", f);
    }
    fputs("</table></details>\n", f);
}

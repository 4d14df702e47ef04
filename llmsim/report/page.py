"""The frame of the HTML report: its style sheet, and the script that draws the figures the page carries."""

from llmsim.report.style import ACCENT, FONT, GRID, INK, LIMIT, MUTED

STYLE = f"""
:root {{ color-scheme: light; }}
* {{ box-sizing: border-box; }}
body {{ margin: 0; background: #f6f7f9; color: {INK}; font: 15px/1.5 {FONT};
  font-variant-numeric: tabular-nums; }}
main {{ max-width: 1120px; margin: 0 auto; padding: 32px 28px 56px; }}
h1 {{ font-size: 27px; line-height: 1.2; font-weight: 650; margin: 0 0 18px; overflow-wrap: anywhere; }}
h2 {{ font-size: 16px; font-weight: 650; margin: 0 0 10px; }}
p {{ margin: 0; }}
section {{ background: white; border: 1px solid {GRID}; border-radius: 8px; padding: 18px 22px;
  margin-top: 16px; }}
.kind {{ color: {ACCENT}; font-size: 13px; font-weight: 600; margin-bottom: 4px; }}
.verdict {{ background: white; border: 1px solid {GRID}; border-left: 5px solid {MUTED}; border-radius: 8px;
  padding: 16px 22px; }}
.verdict.met {{ border-left-color: #00795a; }} .verdict.missed {{ border-left-color: {LIMIT}; }}
.verdict p + p, .verdict ul + p {{ margin-top: 6px; }}
.verdict ul {{ margin: 4px 0 8px; padding-left: 20px; }}
.headline {{ font-size: 20px; font-weight: 650; }}
.mark {{ display: inline-block; width: 26px; color: {MUTED}; }}
.met .mark {{ color: #00795a; }} .missed .mark {{ color: {LIMIT}; }}
.tiles {{ display: grid; grid-template-columns: repeat(5, 1fr); gap: 1px; background: {GRID};
  border: 1px solid {GRID}; }}
.tile {{ background: white; padding: 10px 14px 12px; }}
.tile .name {{ color: {MUTED}; font-size: 12.5px; }}
.tile .value {{ font-size: 23px; font-weight: 600; line-height: 1.3; white-space: nowrap; }}
.tile .more {{ color: {MUTED}; font-size: 12.5px; }}
dl {{ display: grid; grid-template-columns: max-content 1fr; gap: 3px 20px; margin: 0;
  align-content: start; }}
dt {{ color: {MUTED}; }} dd {{ margin: 0; overflow-wrap: anywhere; }}
.cards {{ display: grid; grid-template-columns: repeat(auto-fit, minmax(380px, 1fr)); gap: 16px 36px; }}
table {{ border-collapse: collapse; width: 100%; }}
caption {{ text-align: left; color: {MUTED}; padding-bottom: 4px; }}
th, td {{ padding: 6px 8px; border-bottom: 1px solid {GRID}; text-align: right; white-space: nowrap; }}
thead th {{ color: {MUTED}; font-weight: 500; font-size: 13px; }}
th[scope=row] {{ text-align: left; font-weight: 600; padding-left: 0; white-space: normal; }}
tbody tr:last-child > * {{ border-bottom: 0; }}
td.why, th.why {{ text-align: left; white-space: normal; min-width: 300px; }}
.numbers {{ color: {MUTED}; }}
.meaning {{ color: {MUTED}; font-weight: 400; font-size: 13px; margin-left: 6px; }}
.ledger {{ max-width: 460px; }}
.ledger th[scope=row] {{ font-weight: 400; }}
figure {{ margin: 0; }}
figcaption {{ color: {MUTED}; max-width: 88ch; margin-bottom: 8px; }}
.notes {{ margin: 0; padding-left: 20px; }}
details summary {{ cursor: pointer; color: {ACCENT}; }}
pre {{ background: #f6f7f9; padding: 14px; margin: 10px 0 0; font-size: 12.5px; white-space: pre-wrap;
  overflow-wrap: anywhere; }}
@media screen and (max-width: 860px) {{
  .tiles {{ grid-template-columns: repeat(2, 1fr); }}
  .meaning {{ display: block; margin-left: 0; }}
}}
@media print {{
  @page {{ margin: 14mm; }}
  body {{ background: white; font-size: 12px; print-color-adjust: exact; -webkit-print-color-adjust: exact; }}
  main {{ max-width: none; padding: 0; }}
  section, .verdict, tr {{ break-inside: avoid; }}
  section {{ border: 0; border-top: 1px solid {GRID}; border-radius: 0; padding: 14px 0; }}
  .tiles {{ grid-template-columns: repeat(5, 1fr); }} .tile .value {{ font-size: 17px; }}
  .tile .name, .tile .more, .meaning {{ font-size: 10.5px; }}
  .cards {{ grid-template-columns: repeat(2, 1fr); }}
  .modebar {{ display: none; }}
}}
"""

PAGE = """<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>{title} · llmsim</title>
<link rel="icon" href="data:,">
<style>{style}</style>
<script id="plotly">{plotly}</script>
</head>
<body>
<main>
{body}
</main>
<script>
const figures = {figures};
const config = {config};
for (const [name, figure] of Object.entries(figures)) {{
  const options = figure.data.length ? config : {{staticPlot: true, responsive: true}};
  Plotly.newPlot("figure-" + name, figure.data, figure.layout, options);
}}
function fit() {{
  for (const name of Object.keys(figures)) Plotly.Plots.resize("figure-" + name);
}}
window.matchMedia("print").addEventListener("change", fit);
</script>
</body>
</html>
"""

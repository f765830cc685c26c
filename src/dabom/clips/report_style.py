"""How the report looks, and the few lines that let its reader choose what is shown."""

STYLE = """
:root{color-scheme:light dark;--ink:#16181d;--dim:#5d6470;--line:#d9dde4;--back:#fff;--card:#f6f7f9;
--good:#1a7f4b;--bad:#b3261e;--note:#8a5a00;--bar:#3b6fd4}
@media(prefers-color-scheme:dark){:root{--ink:#e8eaee;--dim:#9aa2ae;--line:#343a44;--back:#14161a;
--card:#1d2026;--good:#5cc98f;--bad:#ff8a80;--note:#e0b050;--bar:#7ba4f0}}
*{box-sizing:border-box}
body{margin:0 auto;max-width:1200px;padding:24px 20px 60px;background:var(--back);color:var(--ink);
font:15px/1.55 system-ui,"Apple SD Gothic Neo","Noto Sans KR","Noto Sans CJK KR","Malgun Gothic",sans-serif;
word-break:keep-all;overflow-wrap:anywhere}
a{color:var(--bar)}
h1{font-size:26px;margin:0 0 12px}h2{font-size:19px;margin:36px 0 10px}
dl.facts{display:grid;grid-template-columns:max-content 1fr;gap:2px 16px;margin:0}
dt{color:var(--dim)}dd{margin:0;min-width:0}
.cards{display:grid;grid-template-columns:repeat(auto-fit,minmax(130px,1fr));gap:10px;margin-top:20px}
.cards div{background:var(--card);border:1px solid var(--line);border-radius:10px;padding:10px 14px}
.cards b{display:block;font-size:22px;font-variant-numeric:tabular-nums}.cards span{color:var(--dim)}
.wide{overflow-x:auto}
table{border-collapse:collapse;width:100%;font-variant-numeric:tabular-nums}
th,td{padding:6px 12px 6px 0;border-bottom:1px solid var(--line);text-align:right;white-space:nowrap}
th:first-child,td:first-child{text-align:left}th{color:var(--dim);font-weight:500}
.good{color:var(--good)}.bad{color:var(--bad)}.note{color:var(--note)}.dim{color:var(--dim)}
.bar{height:14px;border-radius:7px;background:var(--bar);min-width:3px}
.track{background:var(--card);border-radius:7px;margin:2px 0 10px}
.gallery{display:grid;grid-template-columns:repeat(auto-fill,minmax(min(360px,100%),1fr));gap:16px}
.item{background:var(--card);border:1px solid var(--line);border-radius:10px;overflow:hidden}
.item .body{padding:10px 14px 14px}.item img,.item video{display:block;width:100%;background:#000}
.item h3{font-size:15px;margin:0 0 4px}.item p{margin:4px 0}.item p b{color:var(--dim);font-weight:500}
.tag{display:inline-block;border:1px solid currentColor;border-radius:99px;padding:0 8px;margin:2px 4px 2px 0;
font-size:12px}
.none{aspect-ratio:64/9;display:grid;place-items:center;color:var(--dim);border-bottom:1px solid var(--line)}
pre{white-space:pre-wrap;font-size:12px;margin:6px 0 0}summary{color:var(--dim);cursor:pointer}
label{display:inline-block;margin:0 14px 12px 0}select{font:inherit;max-width:100%}
@media(max-width:600px){body{padding:16px 12px 40px}h1{font-size:21px}
dl.facts{grid-template-columns:1fr}dt{margin-top:6px;font-size:13px}
.cards{grid-template-columns:repeat(2,1fr)}}
"""

SCRIPT = """
const pick=document.querySelectorAll('select'),items=document.querySelectorAll('.gallery .item');
const show=()=>items.forEach(i=>{i.hidden=[...pick].some(p=>p.value&&i.dataset[p.name]!==p.value)});
pick.forEach(p=>p.addEventListener('change',show));
"""

"""The look of the pages and the script of the charts. Few colours, each with one meaning.

ok, fail and info have the same colour in every chart, the findings of checkers have red frames, and
faults have soft frames.
"""

from typing import Final

_LIGHT: Final = """
--page:#fbfbfa;--card:#fff;--ink:#1d2126;--soft:#616a75;--line:#e3e6ea;--axis:#aab2bc;
--ok:#2f6bd8;--fail:#b0439b;--info:#d98a00;--wrong:#d3212d;--good:#1a7f4b;--unknown:#9a6200;
--p50:#0b2e6b;--p95:#0b7a5c;--p99:#8a1538;--read:#11807a;--shade:.1;--fault:.34;--lead:.55;
--code:#f2f4f6;color-scheme:light;
"""
_DARK: Final = """
--page:#111418;--card:#181c21;--ink:#e6e9ed;--soft:#98a2ae;--line:#2a3038;--axis:#56606c;
--ok:#5b97f7;--fail:#e07fce;--info:#f0b03c;--wrong:#ff5d63;--good:#4cc38a;--unknown:#f0b03c;
--p50:#d6e4ff;--p95:#6fe0b8;--p99:#ff8fa8;--read:#3fc4bb;--shade:.16;--fault:.5;--lead:.6;
--code:#20252b;color-scheme:dark;
"""
_FAULTS: Final = (
    "#c8553d", "#2b8a8f", "#7d5ba6", "#8a8f2b", "#b5476f", "#4a6fa5", "#b07d1a", "#5a7d4f",
    "#7a6a5a", "#3f8fb5",
)  # fmt: skip
_NODES: Final = (
    "#8f9aa6", "#4f86c6", "#d08c45", "#5ea46b", "#b5689e", "#8d7bc9", "#3fa6a0", "#b59b3c",
    "#c56a5d",
)  # fmt: skip

_RULES: Final = """
*{box-sizing:border-box}
body{margin:0;background:var(--page);color:var(--ink);
 font:15px/1.5 system-ui,-apple-system,"Segoe UI",Roboto,"DejaVu Sans",sans-serif}
main{max-width:1120px;margin:0 auto;padding:28px 20px 60px}
header h1{font-size:25px;line-height:1.3;margin:6px 0 4px;font-weight:650;overflow-wrap:anywhere}
header .why{font-size:17px;margin:0 0 14px;max-width:88ch;overflow-wrap:anywhere}
.verdict{display:inline-block;padding:2px 12px;border-radius:99px;color:#fff;font-weight:650;
 font-size:14px;letter-spacing:.02em}
.verdict.valid{background:#1a7f4b}.verdict.invalid{background:#c81e2b}
.verdict.unknown{background:#8f5b00}
nav{margin:14px 0 0;font-size:13.5px;display:flex;flex-wrap:wrap;gap:4px 16px}
a{color:var(--ok);text-decoration:none}a:hover{text-decoration:underline}
section,.facts{background:var(--card);border:1px solid var(--line);border-radius:10px;
 padding:16px 20px;margin:18px 0}
h2{font-size:18px;margin:0 0 2px;font-weight:650}h3{font-size:15.5px;margin:20px 0 6px}
h4{font-size:13.5px;margin:10px 0 2px;color:var(--soft);font-weight:600}
.note{color:var(--soft);font-size:13.5px;margin:0 0 10px;max-width:100ch}
.facts{display:grid;grid-template-columns:repeat(auto-fit,minmax(170px,1fr));gap:10px 22px}
.facts div{min-width:0;overflow-wrap:anywhere}.facts b{display:block;font-weight:400;
 font-size:12.5px;color:var(--soft)}.facts .wide{grid-column:1/-1}
code,pre{font:12.5px/1.5 ui-monospace,"SF Mono",Menlo,Consolas,"DejaVu Sans Mono",monospace}
code{background:var(--code);padding:1px 5px;border-radius:4px;overflow-wrap:anywhere}
pre{background:var(--code);padding:10px;border-radius:6px;white-space:pre-wrap;
 overflow-wrap:anywhere;margin:6px 0}
.scroll,.chart{overflow-x:auto}
table{border-collapse:collapse;font-size:13.5px;width:100%}
th{font-weight:600;color:var(--soft);font-size:12.5px}
th,td{text-align:left;padding:5px 14px 5px 0;border-bottom:1px solid var(--line);vertical-align:top}
tr:last-child td{border-bottom:0}.num{text-align:right;white-space:nowrap;
 font-variant-numeric:tabular-nums}
.out{font-weight:650}.ok{--c:var(--ok)}.fail{--c:var(--fail)}.info{--c:var(--info)}
.out,.valid-text,.invalid-text,.unknown-text{color:var(--c)}
.valid-text{--c:var(--good)}.invalid-text{--c:var(--wrong)}.unknown-text{--c:var(--unknown)}
.valid-text,.invalid-text,.unknown-text{font-weight:650}
.chart{margin:4px 0 10px}
svg{display:block;width:100%;min-width:880px;height:auto;overflow:visible}
svg text{font:11px system-ui,-apple-system,"Segoe UI",Roboto,"DejaVu Sans",sans-serif;
 fill:var(--ink)}
svg .tick,svg .unit{fill:var(--soft);font-variant-numeric:tabular-nums}svg .row{font-size:12px}
svg .unit{font-size:12px;fill:var(--ink)}svg .inside{fill:var(--ink);pointer-events:none}
.grid{stroke:var(--line);fill:none}.axis{stroke:var(--axis);fill:none}
.cross{stroke:var(--soft);stroke-dasharray:3 3;visibility:hidden;pointer-events:none;fill:none}
.shade{fill:var(--f);fill-opacity:var(--shade)}
.strip{fill:var(--f);fill-opacity:.85}
.fault{fill:var(--f);fill-opacity:var(--fault);stroke:var(--f);stroke-width:1;rx:3px}
.lead{fill:var(--n);fill-opacity:var(--lead);rx:2px}
.dots{fill:none;stroke:var(--c);stroke-width:2;stroke-linecap:round}
.dots.ok{stroke-width:1.6;stroke-opacity:.42}
.dots.ok.few{stroke-width:2.6;stroke-opacity:.55}.dots.fail,.dots.info{stroke-width:3.4}
.dots.read{--c:var(--read);stroke-width:4}.read{fill:var(--read)}
.quantile{fill:none;stroke-width:1.7;stroke-linejoin:round;stroke:var(--c)}
.p50{--c:var(--p50)}.p95{--c:var(--p95)}.p99{--c:var(--p99)}
.step{fill:none;stroke:var(--c);stroke-width:1.5}.step.fail,.step.info{stroke-width:1.8}
.area{fill:var(--c);fill-opacity:.16}.unseen{--c:var(--read)}
.bar{fill:var(--c)}.ring{fill:none;stroke:var(--wrong);stroke-width:1.8;pointer-events:all}
.gap{fill:var(--wrong);fill-opacity:.32;stroke:var(--wrong);stroke-width:1;rx:2px}
.holds{fill:var(--read);--c:var(--read)}
.lacks{fill:none;stroke:var(--wrong);stroke-width:1.8;pointer-events:all}
.differs{fill:var(--wrong)}.open{fill:var(--line)}
.legend{margin:0 0 4px;font-size:13px;color:var(--soft);display:flex;flex-wrap:wrap;gap:2px 18px}
.legend span{display:inline-flex;align-items:center;gap:6px}
.legend i{display:inline-block;width:14px;height:9px;background:var(--c);border-radius:2px}
.legend i.rule{height:0;border-top:2.5px solid var(--c);background:none;border-radius:0}
.legend i.dot{width:8px;height:8px;border-radius:50%}
.legend i.read{--c:var(--read);width:8px;height:8px;border-radius:50%}
.legend i.offending,.legend i.lacks{background:none;border:2px solid var(--wrong)}
.legend i.cell{width:10px;height:10px}.legend i.differs{background:var(--wrong)}
.legend i.open{background:var(--axis)}
.found{border-top:1px solid var(--line);padding-top:2px;margin-top:14px}
.name{color:var(--wrong);font-weight:650}.by{color:var(--soft);font-weight:400;font-size:13px}
.tag{background:var(--wrong);color:#fff;border-radius:99px;padding:1px 9px;font-size:12px}
@media(prefers-color-scheme:dark){.tag{color:#180204}}
.example{border-left:3px solid var(--wrong);padding:1px 0 1px 14px;margin:12px 0}
.example>p{margin:4px 0 6px;overflow-wrap:anywhere}
.op{margin:4px 0;font-size:13.5px}.op p{margin:6px 0 2px}.error{color:var(--soft)}
.op:target{outline:2px solid var(--wrong);outline-offset:3px;border-radius:4px}
.flag{white-space:nowrap}
dl{margin:2px 0;display:grid;grid-template-columns:max-content 1fr;gap:2px 10px}
dt{color:var(--soft)}dd{margin:0;min-width:0}
details{margin:3px 0}summary{cursor:pointer;color:var(--soft);overflow-wrap:anywhere}
#tip{position:fixed;z-index:9;pointer-events:none;visibility:hidden;max-width:min(520px,92vw);
 background:var(--ink);color:var(--page);font-size:12.5px;line-height:1.45;padding:6px 10px;
 border-radius:6px;white-space:pre-line;overflow-wrap:anywhere}
@media(max-width:640px){main{padding:16px 10px 40px}section,.facts{padding:12px}
 header h1{font-size:20px}header .why{font-size:15.5px}}
@media print{body{font-size:12px}main{max-width:none;padding:0}nav,#tip,.cross{display:none}
 section,.facts{border:0;padding:0;margin:14px 0}.chart,.scroll{overflow:visible}
 svg{min-width:0}.chart,.example,tr{break-inside:avoid}h2,h3,h4,.note{break-after:avoid}
 *{print-color-adjust:exact;-webkit-print-color-adjust:exact}}
"""

SCRIPT: Final = """
(()=>{
const tip=document.getElementById("tip"),all=[...document.querySelectorAll("svg.time")];
const number=(svg,name)=>Number(svg.dataset[name]);
const clock=ns=>{const s=ns/1e9,m=Math.floor(s/60);
 return m?m+":"+(s-60*m).toFixed(2).padStart(5,"0"):s.toFixed(3)+" s"};
const hide=()=>{tip.style.visibility="hidden";
 for(const svg of all)svg.lastChild.style.visibility="hidden"};
const mark=(svg,at)=>{const from=number(svg,"from"),to=number(svg,"to"),cross=svg.lastChild;
 if(at<from||at>to){cross.style.visibility="hidden";return}
 const left=number(svg,"left"),x=left+(at-from)/(to-from)*(number(svg,"right")-left);
 cross.setAttribute("transform","translate("+x+" 0)");cross.style.visibility="visible"};
document.addEventListener("pointermove",e=>{
 const svg=e.target.closest&&e.target.closest("svg.time");
 if(!svg)return hide();
 const box=svg.getBoundingClientRect(),left=number(svg,"left"),right=number(svg,"right");
 const x=(e.clientX-box.left)/box.width*svg.viewBox.baseVal.width;
 const at=number(svg,"from")+(x-left)/(right-left)*(number(svg,"to")-number(svg,"from"));
 const inside=x>=left&&x<=right,told=e.target.dataset&&e.target.dataset.t;
 for(const one of all)inside?mark(one,at):one.lastChild.style.visibility="hidden";
 if(!inside&&!told)return tip.style.visibility="hidden";
 tip.textContent=(told?told+(inside?"\\n":""):"")+(inside?clock(at):"");
 tip.style.visibility="visible";
 const wide=tip.offsetWidth,high=tip.offsetHeight;
 tip.style.left=Math.max(4,Math.min(e.clientX+14,innerWidth-wide-8))+"px";
 tip.style.top=(e.clientY+18+high>innerHeight?e.clientY-high-12:e.clientY+18)+"px"});
document.addEventListener("pointerleave",hide);
addEventListener("beforeprint",()=>document.querySelectorAll("details").forEach(d=>d.open=true));
})();
"""


def sheet() -> str:
    """Return the style sheet; paper is always light."""
    faults = "".join(f".f{i}{{--f:{colour}}}" for i, colour in enumerate(_FAULTS))
    nodes = "".join(f".n{i}{{--n:{colour}}}" for i, colour in enumerate(_NODES))
    return (
        f":root{{{_LIGHT}}}\n@media screen and (prefers-color-scheme:dark){{:root{{{_DARK}}}}}\n"
        f"{faults}\n{nodes}\n{_RULES}"
    )

"""The shell of every page: one file, nothing from elsewhere, light or dark as its reader has it.

Pure.  Scripts only make comfortable what is there without them: tooltips that a keyboard can reach,
and a button that copies a command.
"""

from ottla.jepsen.report.markup import Markup, element
from ottla.jepsen.report.theme import COLOURS, PICTURE

STYLE = """
*{box-sizing:border-box}html{-webkit-text-size-adjust:100%}
body{margin:0;background:var(--ground);color:var(--ink);
font:15px/1.5 system-ui,-apple-system,"Segoe UI",Roboto,sans-serif}
main{max-width:1180px;margin:0 auto;padding:28px 32px 64px}
h1{font-size:26px;line-height:1.25;margin:0 0 4px}h2{font-size:18px;margin:38px 0 10px}
h3{font-size:15px;margin:20px 0 6px}p{margin:6px 0}a{color:var(--link)}
.muted{color:var(--muted)}.small{font-size:13px}.mono,code,pre{font-family:ui-monospace,
SFMono-Regular,Menlo,Consolas,"DejaVu Sans Mono",monospace;font-size:13px}
.jump{font-size:14px;margin:16px 0 0}.jump a{margin-right:16px}
.crumbs{font-size:13px;margin-bottom:14px;color:var(--muted)}
.verdict{display:flex;gap:16px;align-items:center;border-radius:12px;padding:18px 22px;
margin:14px 0 18px;border:1px solid}.verdict .sign{font-size:30px;line-height:1;font-weight:700}
.verdict p{margin:0;font-size:18px;line-height:1.4;overflow-wrap:anywhere}
.verdict p.small{font-size:14px;margin-top:4px}
.valid{background:var(--good-ground);border-color:var(--good)!important}
.valid .sign{color:var(--good)}
.invalid{background:var(--bad-ground);border-color:var(--bad)!important}
.invalid .sign{color:var(--bad)}.unknown{background:var(--unsure-ground);
border-color:var(--unsure)!important}.unknown .sign{color:var(--unsure)}
.figures{display:grid;grid-template-columns:repeat(auto-fit,minmax(118px,1fr));gap:10px;margin:0}
.figures div{background:var(--panel);border:1px solid var(--line);border-radius:10px;
padding:10px 12px}.figures dt{color:var(--muted);font-size:13px}
.figures dd{margin:0;font-size:20px;font-weight:600;font-variant-numeric:tabular-nums;
white-space:nowrap}.figures dd small{font-size:13px;font-weight:400;color:var(--muted)}
.wide{overflow-x:auto}table{border-collapse:collapse;width:100%;font-size:14px}
th{text-align:left;color:var(--muted);font-weight:600;font-size:13px}
th,td{padding:6px 12px 6px 0;border-bottom:1px solid var(--line);vertical-align:top}
td.number,th.number{text-align:right;font-variant-numeric:tabular-nums;padding-right:18px;width:1%}
.tag{display:inline-block;border-radius:20px;padding:1px 10px;font-size:13px;font-weight:600;
border:1px solid;white-space:nowrap}.tag.valid{color:var(--good)}.tag.invalid{color:var(--bad)}
.tag.unknown{color:var(--unsure)}.tag.plain{color:var(--muted);border-color:var(--line)}
.finding{border:1px solid var(--line);border-left:4px solid var(--bad);border-radius:8px;
padding:10px 16px;margin:10px 0;background:var(--panel)}
.finding.allowed{border-left-color:var(--line)}
.finding table{font-size:13px}.finding th:nth-child(1){width:88px}
.finding th:nth-child(2),.finding th:nth-child(3){width:82px}.finding th:nth-child(4){width:128px}
.finding td{overflow-wrap:anywhere}.finding td:nth-child(-n+4){
white-space:nowrap}
.ok-word{color:var(--ok);font-weight:600}.fail-word{color:var(--fail);font-weight:600}
.info-word{color:var(--info);font-weight:600}
pre{background:var(--panel);border:1px solid var(--line);border-radius:8px;padding:12px 16px;
white-space:pre-wrap;overflow-wrap:anywhere;margin:6px 0}
.command{position:relative}.command button{position:absolute;top:7px;
right:8px;font:13px system-ui,sans-serif;border:1px solid var(--line);border-radius:6px;
background:var(--ground);color:var(--ink);padding:3px 12px;cursor:pointer}
.command pre{padding-right:90px}
.figure{margin:14px 0 26px;overflow-x:auto}.figure svg{display:block;min-width:820px;width:100%;
height:auto}.figure p{font-size:13px;margin:2px 0 0}
summary{cursor:pointer;padding:4px 0}details{margin:6px 0}
.links{columns:3 240px;list-style:none;padding:0;margin:6px 0}.links li{break-inside:avoid;
padding:1px 0;overflow-wrap:anywhere}
#tip{position:fixed;z-index:9;pointer-events:none;max-width:460px;background:var(--ink);
color:var(--ground);border-radius:7px;padding:7px 11px;font-size:13px;line-height:1.4;
white-space:pre-line;overflow-wrap:anywhere;display:none}
@media(max-width:700px){main{padding:18px 14px 48px}h1{font-size:22px}
.verdict{padding:14px;gap:12px}.verdict p{font-size:16px}}
@media print{.command button,#tip{display:none}}
"""

SCRIPT = """
(()=>{const tip=document.createElement('div');tip.id='tip';tip.setAttribute('role','tooltip');
document.body.append(tip);let at=null;
const words=e=>{for(;e&&e.nodeType===1;e=e.parentNode){const own=e.getAttribute('title');
if(own){e.dataset.tip=own;e.removeAttribute('title')}const t=e.dataset&&e.dataset.tip;
if(t)return[e,t];for(const c of e.children)if(c.tagName==='title'){
e.dataset.tip=c.textContent;c.remove();return[e,e.dataset.tip]}
if(e.tagName==='svg')break}return null};
const show=(e,x,y)=>{const f=words(e);if(!f){hide();return}
if(at!==f[0]){tip.textContent=f[1];at=f[0]}
tip.style.display='block';const w=tip.offsetWidth,h=tip.offsetHeight;
tip.style.left=Math.max(4,Math.min(innerWidth-w-4,x+14))+'px';
tip.style.top=(y+18+h>innerHeight?Math.max(4,y-h-10):y+18)+'px'};
const hide=()=>{tip.style.display='none';at=null};
addEventListener('mousemove',e=>show(e.target,e.clientX,e.clientY));
addEventListener('focusin',e=>{const r=e.target.getBoundingClientRect();
show(e.target,r.left+12,Math.max(70,r.bottom<innerHeight-60?r.bottom-12:r.top+30))});
addEventListener('focusout',hide);
addEventListener('scroll',()=>{if(at!==document.activeElement)hide()},true);
addEventListener('keydown',e=>{if(e.key==='Escape')hide()});
for(const b of document.querySelectorAll('.command button'))b.onclick=()=>{
const t=b.parentNode.querySelector('pre').textContent;
const done=()=>{b.textContent='copied';setTimeout(()=>b.textContent='copy',1500)};
if(navigator.clipboard&&isSecureContext)navigator.clipboard.writeText(t).then(done);else{
getSelection().selectAllChildren(b.parentNode.querySelector('pre'));document.execCommand('copy');
done()}}})();
"""


def page_text(title: str, body: Markup, *, style: str = "", script_more: str = "") -> str:
    """Return a whole HTML page around its body; `script_more` runs after what every page has."""
    head = element(
        "head",
        element("meta", charset="utf-8"),
        element("meta", name="viewport", content="width=device-width, initial-scale=1"),
        element("title", title),
        element("style", Markup(COLOURS + PICTURE + STYLE + style)),
    )
    script = element("script", Markup(script_text(SCRIPT + script_more)))
    whole = element("html", head, element("body", body, script), lang="en")
    return f"<!DOCTYPE html>\n{whole}\n"


def script_text(script: str) -> str:
    """Return a script whose text is well-formed XML too: & and < of code need a CDATA section."""
    return f"//<![CDATA[\n{script.strip()}\n//]]>"


def command_box(command: str) -> Markup:
    """Return a command with a button that copies it."""
    button = element("button", "copy", type="button", aria_label="copy the command")
    return element("div", element("pre", command), button, class_="command")


def tag(words: str, class_: str = "plain") -> Markup:
    """Return a small label."""
    return element("span", words, class_=f"tag {class_}")

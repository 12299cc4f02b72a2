"""How a page looks, what little it does, and the policy that lets nothing else do anything.

Style and script are allowed by their hashes. So nothing has to be drawn by lot for each page, and a page in a file has
the same policy as one from a server. Whatever else gets into a page, by whatever mistake, is not run.
"""

import base64
from hashlib import sha256
from typing import Final

STYLE: Final = """
:root{color-scheme:light dark;--line:#8884;--soft:#8881;--dim:#5f5f5f;--bad:#b22}
@media(prefers-color-scheme:dark){:root{--dim:#a8a8a8;--bad:#f77}}
body{margin:0 auto;max-width:56rem;padding:1.5rem;font:1rem/1.5 system-ui,sans-serif;overflow-wrap:anywhere}
header{border-bottom:1px solid var(--line);margin-bottom:1rem}
h1{font-size:1.4rem;margin:0}
h3,h4,h5,h6{font-size:1rem;margin:.8rem 0 .3rem}
header p,footer,.about{color:var(--dim);font-size:.85rem;font-weight:normal;margin:1em 0}
article p,li{white-space:pre-wrap}
article{margin:1rem 0;padding:.1rem 1rem;border-left:3px solid var(--line)}
article.user{background:var(--soft);border-left-color:#47c}
article.assistant{border-left-color:#4a7}
pre{background:var(--soft);padding:.6rem;overflow-x:auto;white-space:pre-wrap;font:.85rem/1.4 ui-monospace,monospace}
code{font:.9em ui-monospace,monospace}
details{margin:.5rem 0;border:1px solid var(--line);padding:.3rem .6rem}
summary{cursor:pointer}
.failed{color:var(--bad)}
img{max-width:100%;max-height:30rem}
"""

# Whatever changed, the page is asked for again and what differs put in place: it is the server that lays out. It is asked for
# whenever the stream opens, too: what happened before, or while the line was cut, is told by nobody. What was unfolded stays so,
# and what is as it was stays untouched: whoever reads, marks or walks through it by keys keeps their place.
SCRIPT: Final = """
const at=location.pathname;
let told,asked=0,again;
async function look(){
const mine=++asked,answer=await fetch(at,{cache:"no-store"}).catch(()=>null);
if(answer?.status==404){told.close();location.reload();return}
if(!answer?.ok){clearTimeout(again);again=setTimeout(look,2000);return}
const page=new DOMParser().parseFromString(await answer.text(),"text/html");
if(mine!=asked)return;
const folds=document.querySelectorAll("details");
page.querySelectorAll("details").forEach((each,i)=>{if(folds[i]?.open)each.open=true});
document.title=page.title;
for(const name of ["header","main","footer"]){
const old=document.querySelector(name),its=page.querySelector(name);
if(!old||!its)continue;
const fresh=[...its.children];
fresh.forEach((each,i)=>{const was=old.children[i];
if(!was)old.append(each);else if(!was.isEqualNode(each))was.replaceWith(each)});
while(old.children.length>fresh.length)old.lastElementChild.remove()}}
function follow(){
told=new EventSource(at+"/live");
for(const kind of ["open","changed","ended"])told.addEventListener(kind,look);
told.onerror=()=>{if(told.readyState==EventSource.CLOSED){look();setTimeout(follow,10000)}}}
follow();
"""


def _hash_of(source: str) -> str:
    return f"'sha256-{base64.b64encode(sha256(source.encode()).digest()).decode()}'"


_STILL: Final = (
    f"default-src 'none'; style-src {_hash_of(STYLE)}; img-src data:; base-uri 'none'; form-action 'none'"
)
# In a file it stands in the page itself, where `frame-ancestors` counts for nothing.
FILE_POLICY: Final = _STILL
STILL_POLICY: Final = f"{_STILL}; frame-ancestors 'none'"
LIVE_POLICY: Final = f"{STILL_POLICY}; script-src {_hash_of(SCRIPT)}; connect-src 'self'"

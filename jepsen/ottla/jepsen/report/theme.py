"""Colours and shapes of all pages and pictures, light and dark.

Pure.  Colours keep apart for people who cannot tell red from green (outcomes are blue, amber and
magenta, and have shapes of their own); text keeps a contrast of 4.5 : 1 with what lies below it.
"""

COLOURS = """
:root{color-scheme:light dark;--ground:#fff;--panel:#f6f7f9;--ink:#1a2230;--muted:#596575;
--line:#d8dde4;--grid:#e9ecf0;--ok:#1c6db3;--info:#9f5d00;--fail:#b01e6c;--shade:#7a5fb01f;
--fault:#7358ad;--link:#1659a8;--good:#0b7a57;--good-ground:#e4f5ee;--bad:#b3251b;
--bad-ground:#fdeae8;--unsure:#855600;--unsure-ground:#fdf2dc;--mark:#b3251b;
--c0:#1c6db3;--c1:#b84f07;--c2:#0a7d5a;--c3:#a03f8f;--c4:#4aa3d8;--c5:#866a08;--rest:#a5afbb}
@media(prefers-color-scheme:dark){:root{--ground:#11151b;--panel:#191f28;--ink:#e5e9ef;
--muted:#9ba7b6;--line:#303a47;--grid:#222a35;--ok:#5fb0f4;--info:#f0b03c;--fail:#f27db3;
--shade:#a58be033;--fault:#a58be0;--link:#86bdf7;--good:#4ccb9f;--good-ground:#10322a;
--bad:#ff8f84;--bad-ground:#3d1a19;--unsure:#f0b851;--unsure-ground:#3a2c0e;--mark:#ff8f84;
--c0:#5fb0f4;--c1:#f28c45;--c2:#4ccb9f;--c3:#dc8fce;--c4:#2f86c0;--c5:#d3b43c;--rest:#5c6775}}
"""

PICTURE = """
svg.picture{font:12px system-ui,-apple-system,"Segoe UI",Roboto,sans-serif;fill:var(--ink)}
.picture .title{font-size:15px;font-weight:600}.picture .muted{fill:var(--muted)}
.picture .strong{font-weight:600}.picture .end{text-anchor:end}.picture .middle{text-anchor:middle}
.picture .ground{fill:var(--ground)}.picture .panel{fill:var(--panel)}
.picture .grid{stroke:var(--grid)}.picture .axis{stroke:var(--line)}
.picture .shade{fill:var(--shade)}.picture .bar{fill:var(--fault)}
.picture .dots{fill:none;stroke-linecap:round;stroke-width:2.6}
.picture .line{fill:none;stroke-width:1.8;stroke-linejoin:round}
.picture .thin{stroke-width:1.1}.picture .dashed{stroke-dasharray:5 3}
.picture .lane{font-size:11px}.picture .few{opacity:.5}.picture .some{opacity:.75}
.picture .dotted{stroke-dasharray:1.5 3}.picture .area{opacity:.18;stroke:none}
.picture .ok{stroke:var(--ok)}.picture .info{stroke:var(--info)}.picture .fail{stroke:var(--fail)}
.picture .mark{stroke:var(--mark)}.picture .shape{stroke-width:1.5;fill:none}
.picture .info.shape{fill:var(--ground)}
.picture .c0{stroke:var(--c0)}.picture .c1{stroke:var(--c1)}.picture .c2{stroke:var(--c2)}
.picture .c3{stroke:var(--c3)}.picture .c4{stroke:var(--c4)}.picture .c5{stroke:var(--c5)}
.picture .rest{stroke:var(--rest)}
.picture .fc0{fill:var(--c0)}.picture .fc1{fill:var(--c1)}.picture .fc2{fill:var(--c2)}
.picture .fc3{fill:var(--c3)}.picture .fc4{fill:var(--c4)}.picture .fc5{fill:var(--c5)}
.picture .frest{fill:var(--rest)}.picture .fok{fill:var(--ok)}.picture .finfo{fill:var(--info)}
.picture .ffail{fill:var(--fail)}.picture .fmark{fill:var(--mark)}
.picture [tabindex]:focus{outline:2px solid var(--ink);outline-offset:2px}
.picture .hover{fill:transparent}.picture .hover:hover{fill:var(--shade)}
.picture .cell{fill:var(--panel);stroke:var(--line)}.picture .badcell{fill:var(--bad-ground);
stroke:var(--bad);stroke-width:1.5}.picture .bad{fill:var(--bad)}
"""

SERIES_COLOURS_COUNT = 6
"""Series that can still be told apart; what is beyond them is drawn grey together."""

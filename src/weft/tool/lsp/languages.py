"""What language servers call the language of a file, by its ending."""

import os
from typing import Final

_ENDINGS_OF = """
astro=.astro bat=.bat bibtex=.bib clojure=.clj,.cljc,.cljs,.edn coffeescript=.coffee c=.c,.h
cpp=.cpp,.cxx,.cc,.c++,.hpp,.hh,.hxx,.h++ csharp=.cs css=.css d=.d dart=.dart dockerfile=.dockerfile elixir=.ex,.exs
erlang=.erl,.hrl fsharp=.fs,.fsi,.fsx,.fsscript gleam=.gleam go=.go graphql=.graphql,.gql groovy=.groovy
handlebars=.handlebars,.hbs haskell=.hs,.lhs html=.html,.htm ini=.ini java=.java javascript=.js,.mjs,.cjs
javascriptreact=.jsx json=.json jsonc=.jsonc kotlin=.kt,.kts latex=.tex less=.less lua=.lua makefile=.mk markdown=.md
nix=.nix objective-c=.m objective-cpp=.mm ocaml=.ml ocaml.interface=.mli perl=.pl,.pm php=.php powershell=.ps1
prisma=.prisma python=.py,.pyi r=.r razor=.cshtml,.razor ruby=.rb,.rake,.gemspec,.ru rust=.rs sass=.sass scala=.scala
scss=.scss shellscript=.sh,.bash,.zsh,.ksh sql=.sql svelte=.svelte swift=.swift terraform=.tf terraform-vars=.tfvars
toml=.toml typescript=.ts,.mts,.cts typescriptreact=.tsx typst=.typ,.typc vue=.vue xml=.xml,.xsl yaml=.yaml,.yml
zig=.zig,.zon
"""
LANGUAGES: Final = {
    ending: language
    for language, _, endings in (each.partition("=") for each in _ENDINGS_OF.split())
    for ending in endings.split(",")
}


def language_of(path: str) -> str:
    """The language's name, `plaintext` if the ending tells none."""
    name = os.path.basename(path).lower()
    if name in ("dockerfile", "makefile"):
        return name
    return LANGUAGES.get(os.path.splitext(name)[1], "plaintext")

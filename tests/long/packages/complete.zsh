#!/usr/bin/env zsh
# complete.zsh COMPLETIONS WORK: types `sluice cap` and a tabulator into a zsh that has the completions of a directory.
zmodload zsh/zpty || exit 1
completions=$1 work=$2
zpty shell zsh -f -i
zpty -w shell "PS1=; fpath=($completions \$fpath); autoload -Uz compinit; compinit -u -d $work/zcompdump; echo \$_comps[sluice] is loaded"
zpty -r -m shell said $'*\n_sluice is loaded*' || { print -r -- "no completion is loaded: $said"; exit 1 }
zpty -w -n shell $'sluice cap\t'
zpty -r -m shell said '*ture*' || { print -r -- "nothing is completed: $said"; exit 1 }
zpty -d shell
print "zsh completes sluice cap as capture"

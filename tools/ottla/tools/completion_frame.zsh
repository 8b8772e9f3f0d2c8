#compdef ottla
# Completion of ottla in zsh. Written by `make docs` from the parsers; a test compares it.
# To load it: eval "$(ottla completion zsh)", after compinit; or keep it as _ottla in a folder of $fpath.

_ottla_row() {
  ottla_verbs=() ottla_options=() ottla_values=() ottla_argument=''
  case $1 in
@ROWS@
  esac
}

_ottla() {
  local -a ottla_verbs ottla_options ottla_values ottla_found
  local ottla_argument ottla_place='' ottla_want='' ottla_kind='' ottla_word ottla_index
  local ottla_current=${words[CURRENT]}
  _ottla_row ''
  for ((ottla_index = 2; ottla_index < CURRENT; ottla_index++)); do
    ottla_word=${words[ottla_index]}
    if [[ -n $ottla_want ]]; then
      ottla_want=''
    elif [[ $ottla_word == -* ]]; then
      [[ -n ${(M)ottla_values:#${ottla_word}=*} ]] && ottla_want=$ottla_word
    elif [[ -n ${(M)ottla_verbs:#${ottla_word}:*} ]]; then
      ottla_place="${ottla_place:+$ottla_place }$ottla_word"
      ottla_place=${ottla_place#help }
      _ottla_row "$ottla_place"
    fi
  done
  if [[ -z $ottla_want && $ottla_current == --*=* ]]; then
    ottla_want=${ottla_current%%=*}
    compset -P '*='
  fi
  if [[ -n $ottla_want ]]; then
    ottla_found=(${(M)ottla_values:#${ottla_want}=*})
    ottla_kind=${ottla_found[1]#*=}
  elif [[ $ottla_current == -* ]]; then
    compadd -- $ottla_options
    return
  else
    (( $#ottla_verbs )) && _describe command ottla_verbs
    ottla_kind=$ottla_argument
  fi
  case $ottla_kind in
    @file) _files ;;
    @dir) _files -/ ;;
    @*)
      ottla_found=(${(f)"$(${words[1]} completion names ${ottla_kind#@} --line "$BUFFER" 2>/dev/null)"})
      compadd -- $ottla_found ;;
    ?*)
      ottla_found=(${(s:|:)ottla_kind})
      compadd -- $ottla_found ;;
  esac
}

if [[ $funcstack[1] == _ottla ]]; then
  _ottla
else
  compdef _ottla ottla
fi

#!/usr/bin/env bash
# Runs one command of the action; see action.yml. All inputs are environment variables.
set -euo pipefail
: "${INPUT_COMMAND:?}" "${INPUT_CLUSTER:?set the input cluster}" "${SLIPWAY_STATE:?set the input state}"
: "${GITHUB_OUTPUT:?}" "${GITHUB_STEP_SUMMARY:?}"
manifests=${INPUT_MANIFESTS:-}
plan_file=${INPUT_PLAN_FILE:-slipway.plan}
[[ $plan_file == */* ]] || plan_file=./$plan_file # slipway apply takes an argument with a slash as a file
[[ -z ${INPUT_REGION:-} ]] || export AWS_REGION=$INPUT_REGION
export NO_COLOR=1
# Comments have at most 65,536 characters, summaries 1 MiB.
limit=60000
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

# run_slipway ARGUMENT... runs a command that exits with 2 for changes; sets code. Its output goes to the log and to $work/out.
run_slipway() {
  echo "\$ slipway $*"
  code=0
  slipway "$@" >"$work/out" 2>"$work/err" || code=$?
  cat "$work/out" "$work/err"
}

# report TITLE writes the output of the last command as Markdown to $work/report.
report() {
  local body
  body=$(cat "$work/out" "$work/err")
  if ((${#body} > limit)); then
    body="${body:0:limit}"$'\n'"… (the rest is in the log of the job)"
  fi
  {
    echo "### $1"
    echo
    if [[ $1 == *": no changes" ]]; then
      echo "AWS matches the manifests."
    else
      # A fence that is longer than any in the text: output cannot end it.
      echo '``````````text'
      echo "$body"
      echo '``````````'
    fi
    echo
    echo "$(git rev-parse HEAD 2>/dev/null || echo "${GITHUB_SHA:-}")"
  } >"$work/report"
  cat "$work/report" >>"$GITHUB_STEP_SUMMARY"
}

# comment updates the comment of this action and cluster at the pull request, or creates it.
comment() {
  [[ ${INPUT_COMMENT:-true} == true && -n ${PULL_REQUEST:-} ]] || return 0
  local marker="<!-- slipway plan $INPUT_CLUSTER -->" api id
  api="${GITHUB_API_URL:-https://api.github.com}/repos/${GITHUB_REPOSITORY:?}"
  { echo "$marker"; cat "$work/report"; } >"$work/comment"
  jq -n --rawfile body "$work/comment" '{body: $body}' >"$work/request"
  id=$(find_comment "$api" "$marker")
  if [[ -n $id ]]; then
    call PATCH "$api/issues/comments/$id" --data-binary "@$work/request" >/dev/null
  else
    call POST "$api/issues/$PULL_REQUEST/comments" --data-binary "@$work/request" >/dev/null
  fi
}

# find_comment API MARKER prints the id of the first comment that begins with the marker.
find_comment() {
  local page=1 found
  while :; do
    call GET "$1/issues/$PULL_REQUEST/comments?per_page=100&page=$page" >"$work/comments"
    found=$(jq -r --arg marker "$2" '[.[] | select(.body | startswith($marker)) | .id][0] // empty' "$work/comments")
    if [[ -n $found || $(jq length "$work/comments") -lt 100 ]]; then
      echo "$found"
      return
    fi
    page=$((page + 1))
  done
}

# call METHOD URL ARGUMENT... calls GitHub's API. The token is passed in a file: arguments can be seen by other processes.
call() {
  local method=$1 url=$2
  shift 2
  printf 'header = "Authorization: Bearer %s"\n' "${GH_TOKEN:?}" >"$work/auth"
  curl --fail-with-body --silent --show-error --config "$work/auth" --request "$method" \
    --header "Accept: application/vnd.github+json" --header "X-GitHub-Api-Version: 2022-11-28" "$@" "$url"
}

# finish_plan TITLE: reports changes or the failure, and ends the job if the command failed.
finish_plan() {
  case $code in
    0) report "$1: no changes"; echo "changes=false" >>"$GITHUB_OUTPUT" ;;
    2) report "$1"; echo "changes=true" >>"$GITHUB_OUTPUT" ;;
    *) report "$1 failed" ;;
  esac
}

case $INPUT_COMMAND in
  plan)
    if [[ -n $manifests ]]; then
      run_slipway diff "$INPUT_CLUSTER" -f "$manifests"
    else
      run_slipway plan "$INPUT_CLUSTER"
    fi
    finish_plan "Plan of cluster $INPUT_CLUSTER"
    comment
    ;;
  save)
    if [[ -n $manifests ]]; then
      run_slipway replace -f "$manifests" --yes
      if ((code != 0)); then
        report "Manifests of cluster $INPUT_CLUSTER were refused"
        exit "$code"
      fi
    fi
    run_slipway plan "$INPUT_CLUSTER" --out "$plan_file"
    finish_plan "Saved plan of cluster $INPUT_CLUSTER"
    echo "plan-file=$plan_file" >>"$GITHUB_OUTPUT"
    ;;
  apply)
    run_slipway apply "$plan_file" --yes
    if ((code == 0)) && [[ -n ${INPUT_WAIT:-} ]]; then
      cp "$work/err" "$work/applied"
      run_slipway validate cluster "$INPUT_CLUSTER" --wait "$INPUT_WAIT"
      cat "$work/applied" "$work/err" >"$work/both" && mv "$work/both" "$work/err"
    fi
    if ((code == 0)); then
      report "Applied cluster $INPUT_CLUSTER"
    else
      report "Apply of cluster $INPUT_CLUSTER failed"
    fi
    ;;
  *)
    echo "::error::the input command is $INPUT_COMMAND; it must be plan, save or apply"
    exit 1
    ;;
esac
((code == 0 || code == 2)) || exit "$code"
[[ $INPUT_COMMAND != apply ]] || exit "$code"

# To be sourced by scripts: tests, linters and packages compile with the flags of the released programs, so that all of them
# use the same compiled packages. Otherwise a cold machine compiles two thousand packages twice.
export CGO_ENABLED=0
[[ ${GOFLAGS:-} == *-trimpath* ]] || export GOFLAGS="${GOFLAGS:-} -trimpath"

// SPDX-License-Identifier: Apache-2.0

// Package plainerror rewrites the error texts of libraries (the AWS SDK, net, strconv, encoding/json,
// YAML, time) in plain words: "connect to 127.0.0.1:4566: connection refused" instead of a chain of
// the library's layers. Facts are kept: the service, the operation, AWS's code and message, the
// address, the value. It gives no hints, and does not know what was being done.
package plainerror

import (
	"regexp"
	"strings"
	"sync"
)

// Wrap returns err with its text in plain words. errors.Is and errors.As find what err wraps. It returns
// nil for nil.
func Wrap(err error) error {
	if err == nil {
		return nil
	}

	plain := Text(err.Error())
	if plain == err.Error() {
		return err
	}

	return &rewritten{text: plain, err: err}
}

// rewritten is an error with another text.
type rewritten struct {
	text string
	err  error
}

func (r *rewritten) Error() string { return r.text }

func (r *rewritten) Unwrap() error { return r.err }

// Text returns a text, which may contain errors of libraries, in plain words. A text without any is
// returned as it is.
func Text(text string) string {
	if !containsLibraryText(text) {
		return text
	}

	for _, r := range compiledRules() {
		text = r.pattern.ReplaceAllString(text, r.with)
	}

	return text
}

// containsLibraryText reports whether a text contains a mark of a library's error.
func containsLibraryText(text string) bool {
	for _, mark := range []string{
		"operation error ", "response error StatusCode", "api error ", "request send failed", "get credentials",
		"rpc error: ", "dial tcp", "dial unix", "read tcp", "write tcp", "listen tcp", "lookup ", "x509: ", "tls: ", "net/http: ",
		"context deadline exceeded", "context canceled", "unexpected EOF", ": EOF", "http: ",
		"strconv.", "json: ", "JSON", "yaml: ", "invalid character ", "unmarshal", "time: ",
		"exec: ", "failed to get shared config", "failed to load ", "Custom endpoint", "stdin: EOF",
	} {
		if strings.Contains(text, mark) {
			return true
		}
	}

	return false
}

// rule replaces a pattern.
type rule struct{ pattern, with string }

// compiledRule is a [rule] whose pattern is compiled.
type compiledRule struct {
	pattern *regexp.Regexp
	with    string
}

// compiledRules returns the compiled [rules]. It compiles them once, when the first error needs them.
var compiledRules = sync.OnceValue(func() []compiledRule { //nolint:gochecknoglobals // a cache of constants
	var compiled []compiledRule
	for _, r := range rules() {
		compiled = append(compiled, compiledRule{pattern: regexp.MustCompile(r.pattern), with: r.with})
	}

	return compiled
})

// rules returns the replacements in the order in which they are made: outer layers first.
func rules() []rule {
	return append(append(awsRules(), networkRules()...), parserRules()...)
}

// awsRules are for the AWS SDK.
func awsRules() []rule {
	return []rule{
		// Credentials: the chain ends with the metadata service, which is not what is wrong.
		{
			`get identity: get credentials: .*(no EC2 IMDS role found|static credentials are empty).*`,
			`no AWS credentials are set`,
		},
		{
			`get identity: get credentials: .*(the SSO session has expired or is invalid|SSO session.*expired|` +
				`failed to read cached SSO token|refresh cached SSO token).*`,
			`the AWS SSO session has expired`,
		},
		{`get identity: get credentials: (failed to refresh cached credentials, )?`, `get AWS credentials: `},
		{`failed to refresh cached credentials, `, ``},
		{`failed to get shared config profile, (\S+)`, `AWS profile $1 does not exist`},
		{`failed to load (shared )?config[^,:]*[,:] `, `read ~/.aws/config: `},
		{"Custom endpoint `([^`]*)` was not a valid URI", `AWS_ENDPOINT_URL "$1" is not a URL`},
		{`resolve auth scheme: resolve endpoint: (endpoint rule error, )?`, ``},

		{`operation error (\w[\w ]*): (\w+), `, `$1 $2: `},
		{`exceeded maximum number of attempts, (\d+), `, `after $1 attempts: `},
		{`failed to get rate limit token, retry quota exceeded, [^:,]*(, )?`, ``},
		{`https? response error StatusCode: (5\d\d), RequestID: ([^,]*), (HostID: [^,]*, )?`, `HTTP $1, request $2: `},
		{`https? response error StatusCode: \d+, RequestID: [^,]*, (HostID: [^,]*, )?`, ``},
		{`api error ([\w.]+): (UnknownError|)$`, `$1`},
		{`api error ([\w.]+): `, `$1: `},
		{`request send failed, `, ``},
		{`canceled, context canceled`, `interrupted`},
	}
}

// networkRules are for net, net/http and crypto/x509.
func networkRules() []rule {
	return []rule{
		{`(Get|Put|Post|Head|Delete|Patch) "([^"?]*)(\?[^"]*)?": `, `$2: `}, // a query may contain a signature
		{`dial (?:tcp|udp)[46]?:? ?lookup (\S+?)( on \S+)?: no such host`, `host $1 is not in the DNS`},
		{`dial (?:tcp|udp)[46]?:? ?lookup (\S+?)( on \S+)?: .*?(timeout|misbehaving|refused)`, `the DNS gave no answer for host $1`},
		{`lookup (\S+?)( on \S+)?: no such host`, `host $1 is not in the DNS`},
		{`dial (?:tcp|udp)[46]? (\S+): connect: (.*)`, `connect to $1: $2`},
		{`dial (?:tcp|udp)[46]? (\S+): i/o timeout`, `connect to $1: no answer`},
		{`dial (?:tcp|udp)[46]?: i/o timeout`, `no answer`}, // before the host's address was known
		{`dial (?:tcp|udp)[46]? (\S+): `, `connect to $1: `},
		{`dial unix (\S+): connect: `, `connect to $1: `},
		{`read tcp[46]? \S+->(\S+): (read: )?`, `read from $1: `},
		{`write tcp[46]? \S+->(\S+): (write: )?`, `write to $1: `},
		{`listen (?:tcp|udp)[46]? (\S+): bind: `, `listen on $1: `},
		{`tls: failed to verify certificate: x509: `, `its certificate is not valid: `},
		{`x509: `, `the certificate is not valid: `},
		{`tls: first record does not look like a TLS handshake`, `it does not speak TLS`},
		{`http: server gave HTTP response to HTTPS client`, `it answers with HTTP, not HTTPS`},
		{`net/http: TLS handshake timeout`, `no answer to the TLS handshake`},
		{`net/http: request canceled \(Client\.Timeout exceeded[^)]*\)`, `no answer in time`},
		{`context deadline exceeded( \(Client\.Timeout exceeded[^)]*\))?`, `no answer in time`},
		{`context canceled`, `interrupted`},
		{`rpc error: code = \w+ desc = `, ``},
		{`unexpected EOF`, `the data ends too early`},
		{`: EOF`, `: no more data`},
		{`tls: `, `TLS: `},
		{`net/http: `, ``},
		{`\bhttp: `, ``},
	}
}

// parserRules are for strconv, time, encoding/json, YAML and os/exec.
func parserRules() []rule {
	return []rule{
		{`error converting YAML to JSON: `, ``},
		{`error unmarshaling JSON: (while decoding JSON: )?`, ``},
		{`error converting JSON to YAML: `, ``},
		{`json: cannot unmarshal (\w+)( \S+)? into Go struct field \w*\.?(\S+) of type [\w.*\[\]]+`, `field $3 cannot be a $1`},
		{`json: cannot unmarshal (\w+)( \S+)? into Go value of type [\w.*\[\]]+`, `a $1 is not allowed here`},
		{`cannot be a ([aeiou])`, `cannot be an $1`},
		{`json: unknown field `, `unknown field `},
		{`(^|[\s:])json: `, `${1}JSON: `},
		{`invalid character ('.*?') (after|in|looking)[^:;,]*`, `not valid JSON at $1`},
		{`unexpected end of JSON input`, `the JSON ends too early`},
		{`yaml: unmarshal errors:\s*`, ``},
		{`cannot unmarshal !!(\w+) (.*?) into \S+`, `$2 is not allowed here`},
		{`(^|[\s:])yaml: (line \d+: )?`, `$1$2`},
		{`strconv\.Parse(?:Int|Uint|Float)|strconv\.Atoi`, `strconv.Number`},
		{`strconv\.Number: parsing (".*?"): value out of range`, `$1 is too large`},
		{`strconv\.Number: parsing (".*?"): invalid syntax`, `$1 is not a number`},
		{`strconv\.ParseBool: parsing (".*?"): invalid syntax`, `$1 is not true or false`},
		{
			`time: (?:invalid duration|missing unit in duration|unknown unit ".*?" in duration) (".*?")`,
			`$1 is not a duration such as 30s or 10m`,
		},
		{`exec: (".*?"): executable file not found in \$PATH`, `program $1 is not in PATH`},
		{`exec: `, ``},
	}
}

// SPDX-License-Identifier: Apache-2.0

package supportbundle

import (
	"bytes"
	"encoding/base64"
	"regexp"
	"slices"
	"strings"
)

// redacted replaces a secret. What kind it was follows in parentheses.
const redacted = "[redacted]"

// textRule finds one kind of secret in a line. The secret is the named group of the pattern, or all of it.
type textRule struct {
	// hints are lower-case texts, one of which is in every line that has such a secret. They are looked for first,
	// because that is faster.
	hints   []string
	pattern *regexp.Regexp
	// isSecret decides about a match; nil: every match is one.
	isSecret func(match string) bool
}

// secretWords returns the words that the names of settings with secret values contain.
func secretWords() []string {
	return []string{
		"password", "passwd", "passphrase", "secret", "token", "api-key", "api_key", "apikey", "access-key", "access_key",
		"accesskey", "private-key", "private_key", "privatekey", "key-data", "credential", "authorization", "cookie",
		"session-id", "session_id", "sessionid", "user-data", "user_data", "userdata", "signature",
	}
}

// secretName matches the name of a setting with a secret value.
func secretName() string {
	return `(?:[A-Za-z0-9_.-]*(?:` + strings.Join(secretWords(), "|") + `)[A-Za-z0-9_-]*)`
}

// harmlessEnding matches names that contain such a word and whose values are not secret: they name something about the
// secret. Several secrets are a kind of resources.
func harmlessEnding() *regexp.Regexp {
	return regexp.MustCompile(
		`(?i)(?:file|path|dir|name|names|ref|ttl|version|type|mode|hash|sha256|count|limit|timeout|expiration|policy|` +
			`keyid|key_id|format|size|url|uri|projection|-ca|namespace|seconds|secrets|tokens)$`,
	)
}

// textRules returns the rules for lines in the order in which they are applied.
func textRules() []textRule {
	harmless := harmlessEnding()
	isNamedSecret := func(match string) bool {
		name := strings.Trim(strings.FieldsFunc(match, func(r rune) bool {
			return strings.ContainsRune(`:= "'\`, r)
		})[0], "-")

		return !harmless.MatchString(name)
	}

	return []textRule{
		{
			hints:   []string{"age-secret-key-"},
			pattern: regexp.MustCompile(`AGE-SECRET-KEY-1[A-Z0-9]{20,}`),
		},
		{
			hints:   []string{"eyj"},
			pattern: regexp.MustCompile(`eyJ[A-Za-z0-9_-]{5,}\.[A-Za-z0-9_-]{5,}\.[A-Za-z0-9_-]{5,}`),
		},
		{
			hints:   []string{"bearer", "basic"},
			pattern: regexp.MustCompile(`(?i)\b(?:bearer|basic)\s+(?P<s>[A-Za-z0-9._~+/=-]{8,})`),
		},
		{
			hints:   []string{"akia", "asia", "abia", "acca"},
			pattern: regexp.MustCompile(`\b(?:AKIA|ASIA|ABIA|ACCA)[A-Z0-9]{16}\b`),
		},
		{
			hints:   []string{"x-amz-"},
			pattern: regexp.MustCompile(`(?i)X-Amz-(?:Signature|Credential|Security-Token)(?:=|%3D)(?P<s>[^&\s"'\\]+)`),
		},
		{
			hints:   []string{"ghp_", "gho_", "ghu_", "ghs_", "ghr_", "github_pat_", "xox"},
			pattern: regexp.MustCompile(`\bgh[pousr]_[A-Za-z0-9]{20,}|\bgithub_pat_[A-Za-z0-9_]{20,}|\bxox[abprs]-[A-Za-z0-9-]{10,}`),
		},
		{
			hints:   []string{"."}, // Kubernetes bootstrap tokens
			pattern: regexp.MustCompile(`\b[a-z0-9]{6}\.[a-z0-9]{16}\b`),
		},
		{
			hints:   []string{"://"},
			pattern: regexp.MustCompile(`://[^/\s:@"']*:(?P<s>[^/\s@"']+)@`),
		},
		// NAME=VALUE, NAME: VALUE and "NAME": "VALUE", quotes escaped or not; then --flag VALUE.
		{
			hints: secretWords(),
			pattern: regexp.MustCompile(`(?i)` + secretName() +
				`\\*["']?\s*[:=]\s*(?:\\*["'](?P<s>(?:[^"'\\]|\\[^"'\\])+)|(?P<t>[^\s"'\\,;}\]\[{&]+))`),
			isSecret: isNamedSecret,
		},
		{
			hints:    []string{"--"},
			pattern:  regexp.MustCompile(`(?i)--` + secretName() + `\s+(?P<s>[^\s"'-][^\s"']*)`),
			isSecret: isNamedSecret,
		},
	}
}

// holdsPrivateKey reports whether a base64 text is a private key in PEM, as in a kubeconfig.
func holdsPrivateKey(text string) bool {
	for skip := range 4 { // the match may begin in the middle of a longer word
		if skip >= len(text) {
			return false
		}

		rest := strings.TrimRight(text[skip:], "=")
		raw, _ := base64.RawStdEncoding.DecodeString(rest[:len(rest)/4*4])
		if bytes.Contains(raw, []byte("PRIVATE KEY-----")) {
			return true
		}
	}

	return false
}

// looksLikeSecretKey reports whether a word of 40 characters may be a secret access key: it has upper-case and lower-case
// letters and digits. Hashes in hex do not.
func looksLikeSecretKey(word string) bool {
	return strings.ContainsFunc(word, func(r rune) bool { return r >= 'A' && r <= 'Z' }) &&
		strings.ContainsFunc(word, func(r rune) bool { return r >= 'a' && r <= 'z' }) &&
		strings.ContainsFunc(word, func(r rune) bool { return r >= '0' && r <= '9' })
}

// Redactor replaces secrets. It is safe for concurrent use.
type Redactor struct {
	rules      []textRule
	harmless   *regexp.Regexp
	named      *regexp.Regexp
	privateKey *regexp.Regexp // whole, or cut off at its end
	keyBegin   *regexp.Regexp
	keyEnd     *regexp.Regexp
}

// NewRedactor returns a redactor.
func NewRedactor() *Redactor {
	const begin = `-----BEGIN [A-Z0-9 ]*PRIVATE KEY-----`
	const end = `-----END [A-Z0-9 ]*PRIVATE KEY-----`

	return &Redactor{
		rules:      textRules(),
		harmless:   harmlessEnding(),
		named:      regexp.MustCompile(`(?i)^` + secretName() + `$`),
		privateKey: regexp.MustCompile(`(?s)` + begin + `.*?(?:` + end + `|\z)`),
		keyBegin:   regexp.MustCompile(begin),
		keyEnd:     regexp.MustCompile(end),
	}
}

// Text returns text without secrets, and the number of replacements. Text without secrets stays as it is.
func (r *Redactor) Text(text string) (string, int) {
	text, n := r.redactKeys(text)
	var out strings.Builder

	for line := range strings.Lines(text) {
		clean, count := r.line(line)
		out.WriteString(clean)
		n += count
	}

	return out.String(), n
}

// line redacts one line.
func (r *Redactor) line(line string) (string, int) {
	line, n := redactWords(line)
	lower := strings.ToLower(line)
	for _, rule := range r.rules {
		if !slices.ContainsFunc(rule.hints, func(hint string) bool { return strings.Contains(lower, hint) }) {
			continue
		}

		var count int
		line, count = rule.apply(line)
		n += count
	}

	return line, n
}

// maxKeySize is the size of the largest private key in PEM: an RSA key of 8192 bits has 6.4 KB.
const maxKeySize = 8192

// redactKeys replaces private keys in PEM: also in one line of JSON, with the prefixes of a log, cut off at their end, or
// at the beginning of the text without their own beginning, as on a console.
func (r *Redactor) redactKeys(text string) (string, int) {
	if !strings.Contains(text, "PRIVATE KEY-----") {
		return text, 0
	}

	n := 0
	if first := r.keyEnd.FindStringIndex(text); first != nil && !r.keyBegin.MatchString(text[:first[0]]) {
		text = text[:max(0, first[0]-maxKeySize)] + redacted + text[first[1]:]
		n++
	}

	n += len(r.privateKey.FindAllStringIndex(text, -1))

	return r.privateKey.ReplaceAllString(text, redacted), n
}

// minKeyWord is the length of a secret access key, the shortest secret that is found by its letters alone.
const minKeyWord = 40

// redactWords replaces words in base64 that are secret access keys or private keys.
func redactWords(line string) (string, int) {
	n := 0
	for start := 0; start < len(line); {
		if !isKeyByte(line[start]) {
			start++
			continue
		}

		end := start
		for end < len(line) && isKeyByte(line[end]) {
			end++
		}

		word := line[start:end]
		if len(word) == minKeyWord && looksLikeSecretKey(word) || len(word) > minKeyWord && holdsPrivateKey(word) {
			line = line[:start] + redacted + line[end:]
			end = start + len(redacted)
			n++
		}

		start = end
	}

	return line, n
}

func isKeyByte(b byte) bool {
	return b >= 'A' && b <= 'Z' || b >= 'a' && b <= 'z' || b >= '0' && b <= '9' || b == '/' || b == '+'
}

// apply replaces the secrets that a rule finds.
func (rule textRule) apply(text string) (string, int) {
	found := rule.pattern.FindAllStringSubmatchIndex(text, -1)
	if found == nil {
		return text, 0
	}

	var out strings.Builder
	names := rule.pattern.SubexpNames()
	last := 0
	n := 0

	for _, at := range found {
		start, end := at[0], at[1]
		for i, name := range names {
			if name != "" && at[2*i] >= 0 {
				start, end = at[2*i], at[2*i+1]
			}
		}

		if rule.isSecret != nil && !rule.isSecret(text[at[0]:at[1]]) || isHarmlessValue(text[start:end]) {
			continue
		}

		out.WriteString(text[last:start])
		out.WriteString(redacted)
		last = end
		n++
	}

	out.WriteString(text[last:])

	return out.String(), n
}

// isHarmlessValue reports whether a value is no secret whatever its name is.
func isHarmlessValue(value string) bool {
	switch strings.ToLower(strings.Trim(value, `"'`)) {
	case "", "true", "false", "null", "none", "<nil>", "nil", "required", "optional", strings.ToLower(redacted):
		return true
	}

	// Fencing tokens and the like are small numbers.
	isSmallNumber := len(value) <= maxHarmlessDigits && strings.Trim(value, "0123456789") == ""

	return isSmallNumber || strings.HasPrefix(value, redacted)
}

const maxHarmlessDigits = 4

// Value returns a tree of JSON values without secrets, and the number of replacements: strings are redacted as
// texts, values of secret names are replaced, and so is the value of an environment variable with such a name.
func (r *Redactor) Value(v any) (any, int) {
	switch v := v.(type) {
	case string:
		return r.Text(v)
	case []any:
		n := 0
		out := make([]any, len(v))
		for i, item := range v {
			var count int
			out[i], count = r.Value(item)
			n += count
		}

		return out, n

	case map[string]any:
		return r.object(v)
	}

	return v, 0
}

// object redacts the members of an object.
func (r *Redactor) object(fields map[string]any) (map[string]any, int) {
	out := map[string]any{}
	n := 0
	_, hasValue := fields["value"].(string)
	name, _ := fields["name"].(string)
	isEnv := hasValue && r.IsSecretName(name)

	for key, value := range fields {
		// Objects of a cluster repeat their whole specification here, as one string.
		drop := key == "kubectl.kubernetes.io/last-applied-configuration"
		secret := drop || r.IsSecretName(key) || isEnv && key == "value"
		if secret && !isStructure(value) {
			if text, isText := value.(string); !isText || isHarmlessValue(text) {
				out[key] = value
				continue
			}

			out[key] = redacted
			n++

			continue
		}

		cleanKey, count := r.Text(key)
		n += count
		out[cleanKey], count = r.Value(value)
		n += count
	}

	return out, n
}

func isStructure(v any) bool {
	switch v.(type) {
	case []any, map[string]any:
		return true
	}

	return false
}

// IsSecretName reports whether the value of a setting of this name is a secret.
func (r *Redactor) IsSecretName(name string) bool {
	return r.named.MatchString(name) && !r.harmless.MatchString(name)
}

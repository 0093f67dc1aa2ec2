// SPDX-License-Identifier: Apache-2.0

// Package metricstest reads files of Prometheus' alert rules, for tests that compare them with what
// the programs of a cluster measure.
package metricstest

import (
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"
)

// Rule is an alert rule.
type Rule struct {
	Alert       string            `yaml:"alert"`
	Expr        string            `yaml:"expr"`
	For         string            `yaml:"for"`
	Labels      map[string]string `yaml:"labels"`
	Annotations map[string]string `yaml:"annotations"`
}

// ReadRules returns the rules of a file, which may have no other fields.
func ReadRules(tb testing.TB, path string) []Rule {
	tb.Helper()

	body, err := os.ReadFile(path)
	if err != nil {
		tb.Fatal(err)
	}

	var file struct {
		Groups []struct {
			Name  string `yaml:"name"`
			Rules []Rule `yaml:"rules"`
		} `yaml:"groups"`
	}

	decoder := yaml.NewDecoder(strings.NewReader(string(body)))
	decoder.KnownFields(true)
	if err := decoder.Decode(&file); err != nil {
		tb.Fatalf("%s: %v", path, err)
	}

	var rules []Rule
	for _, group := range file.Groups {
		rules = append(rules, group.Rules...)
	}

	return rules
}

// CheckRule checks that a rule is complete.
func CheckRule(tb testing.TB, r Rule) {
	tb.Helper()

	isSeverity := slices.Contains([]string{"critical", "warning", "none"}, r.Labels["severity"])
	isDelay := r.For == "" || regexp.MustCompile(`^[0-9]+[mh]$`).MatchString(r.For)
	if !isSeverity || !isDelay {
		tb.Errorf("%s has the labels %v and the delay %q", r.Alert, r.Labels, r.For)
	}

	for _, name := range []string{"summary", "description", "runbook_url"} {
		if r.Annotations[name] == "" {
			tb.Errorf("%s has no %s", r.Alert, name)
		}
	}

	for _, pair := range []string{"()", "{}", "[]"} {
		if strings.Count(r.Expr, pair[:1]) != strings.Count(r.Expr, pair[1:]) {
			tb.Errorf("%s: %s are not balanced in %s", r.Alert, pair, r.Expr)
		}
	}
}

// MetricsIn returns the names in an expression that are neither functions, nor keywords, nor
// labels.
func MetricsIn(expr string) []string {
	for _, pattern := range []string{
		`"[^"]*"`, `\{[^}]*\}`, `\[[^\]]*\]`, `\b(by|without|on|ignoring) *\([^)]*\)`, `\boffset +\w+`,
	} {
		expr = regexp.MustCompile(pattern).ReplaceAllString(expr, "")
	}

	var out []string
	for _, name := range regexp.MustCompile(`[a-zA-Z_:][a-zA-Z0-9_:]*\b *\(?`).FindAllString(expr, -1) {
		isKeyword := slices.Contains([]string{"and", "or", "unless"}, strings.TrimRight(name, " ("))
		if !strings.HasSuffix(name, "(") && !isKeyword {
			out = append(out, strings.TrimSpace(name))
		}
	}

	return out
}

// SPDX-License-Identifier: Apache-2.0

package metrics_test

import (
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"

	"github.com/slipway-k8s/slipway/internal/machine/metrics"
)

// ruleFile is a file of alert rules, of which no other field is used.
type ruleFile struct {
	Groups []struct {
		Name  string `yaml:"name"`
		Rules []rule `yaml:"rules"`
	} `yaml:"groups"`
}

type rule struct {
	Alert       string            `yaml:"alert"`
	Expr        string            `yaml:"expr"`
	For         string            `yaml:"for"`
	Labels      map[string]string `yaml:"labels"`
	Annotations map[string]string `yaml:"annotations"`
}

// metricsIn returns the names in an expression that are neither functions, nor keywords, nor labels.
func metricsIn(expr string) []string {
	for _, pattern := range []string{`"[^"]*"`, `\{[^}]*\}`, `\[[^\]]*\]`, `\b(by|without|on|ignoring) *\([^)]*\)`, `\boffset +\w+`} {
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

// TestRules: each rule is complete, is in the documentation, and names metrics that the agent has, or etcd's. TestRealEtcdMetrics of the
// agent compares the latter with a real etcd.
func TestRules(t *testing.T) {
	body, err := os.ReadFile("../../../examples/monitoring/etcd-rules.yaml")
	if err != nil {
		t.Fatal(err)
	}
	docs, err := os.ReadFile("../../../docs/operations/etcd.md")
	if err != nil {
		t.Fatal(err)
	}
	var file ruleFile
	decoder := yaml.NewDecoder(strings.NewReader(string(body)))
	decoder.KnownFields(true)
	if err := decoder.Decode(&file); err != nil {
		t.Fatal(err)
	}
	var known []string
	for _, f := range metrics.Families() {
		known = append(known, f.Name)
		if !strings.Contains(string(docs), "`"+f.Name) {
			t.Errorf("docs/operations/etcd.md does not name the metric %s", f.Name)
		}
	}
	seen := map[string]bool{}
	for _, group := range file.Groups {
		for _, r := range group.Rules {
			if seen[r.Alert] {
				t.Errorf("%s is there twice", r.Alert)
			}
			seen[r.Alert] = true
			checkRule(t, r, known)
			if !strings.Contains(string(docs), "| "+r.Alert+" |") {
				t.Errorf("docs/operations/etcd.md does not name the alert %s", r.Alert)
			}
		}
	}
	if len(seen) < 10 {
		t.Errorf("%d rules", len(seen))
	}
}

func checkRule(t *testing.T, r rule, known []string) {
	t.Helper()
	isSeverity := slices.Contains([]string{"critical", "warning"}, r.Labels["severity"])
	isDelay := r.For == "" || regexp.MustCompile(`^[0-9]+[mh]$`).MatchString(r.For)
	if !isSeverity || !isDelay || r.Annotations["summary"] == "" || r.Annotations["description"] == "" {
		t.Errorf("%s is not complete: %+v", r.Alert, r)
	}
	for _, pair := range []string{"()", "{}", "[]"} {
		if strings.Count(r.Expr, pair[:1]) != strings.Count(r.Expr, pair[1:]) {
			t.Errorf("%s: %s are not balanced in %s", r.Alert, pair, r.Expr)
		}
	}
	names := metricsIn(r.Expr)
	if len(names) == 0 {
		t.Errorf("%s names no metric: %s", r.Alert, r.Expr)
	}
	for _, name := range names {
		if !slices.Contains(known, name) && !strings.HasPrefix(name, "etcd_") {
			t.Errorf("%s: nobody has the metric %s", r.Alert, name)
		}
	}
}

// TestMetricsIn: names of metrics are told from the rest of an expression.
func TestMetricsIn(t *testing.T) {
	expr := `count by (cluster) (a_b == 1 and c{path="x", y=~"z"}) * 2 <= max(d offset 1h) or rate(e_bucket[5m]) > 0.25 unless time() > f`
	if got, want := metricsIn(expr), []string{"a_b", "c", "d", "e_bucket", "f"}; !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
}

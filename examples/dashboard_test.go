// SPDX-License-Identifier: Apache-2.0

package examples_test

import (
	"context"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"

	"github.com/slipway-k8s/slipway/internal/lib/asset/assettest"
)

// dashboardFile has the fields of a dashboard of Grafana that the tests read.
type dashboardFile struct {
	Title, UID    string
	SchemaVersion int
	Time          struct{ From, To string }
	Templating    struct {
		List []struct {
			Name, Type, Query string
			Datasource        dataSource
		}
	}
	Panels []dashboardPanel
}

type dataSource struct{ Type, UID string }

type dashboardPanel struct {
	ID          int
	Type, Title string
	Datasource  dataSource
	GridPos     struct{ H, W, X, Y int }
	FieldConfig struct{ Defaults struct{ Unit string } }
	Targets     []struct{ RefID, Expr, LegendFormat string }
}

// dashboardColumns is the width of a dashboard in Grafana.
const dashboardColumns = 24

func readDashboard(t *testing.T) (d dashboardFile) {
	t.Helper()
	body, err := os.ReadFile("monitoring/dashboard.json")
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(body, &d); err != nil {
		t.Fatal(err)
	}
	return d
}

// TestDashboard: the dashboard has what Grafana needs to import it, and each panel a title, a unit, a place of its own and queries.
// Grafana itself is not available here: nothing shows what it draws.
func TestDashboard(t *testing.T) {
	d := readDashboard(t)
	if d.Title == "" || d.UID == "" || len(d.UID) > 40 || d.SchemaVersion == 0 || d.Time.From == "" || d.Time.To == "" || len(d.Panels) == 0 {
		t.Errorf("a member is missing: title %q, uid %q, schema version %d, time %v", d.Title, d.UID, d.SchemaVersion, d.Time)
	}
	// The ids of Grafana's units: packages/grafana-data/src/valueFormats/categories.ts.
	units := []string{"short", "s", "bytes", "Bps", "reqps", "percentunit"}
	ids, titles, taken := map[int]bool{}, map[string]bool{}, map[[2]int]string{}
	for _, p := range d.Panels {
		if p.ID == 0 || ids[p.ID] || p.Title == "" || titles[p.Title] || !slices.Contains([]string{"stat", "timeseries"}, p.Type) {
			t.Errorf("panel %d %q of type %q: the id and the title must be there once, and the type be known", p.ID, p.Title, p.Type)
		}
		ids[p.ID], titles[p.Title] = true, true
		if !slices.Contains(units, p.FieldConfig.Defaults.Unit) {
			t.Errorf("panel %q has the unit %q", p.Title, p.FieldConfig.Defaults.Unit)
		}
		if want := (dataSource{"prometheus", "${datasource}"}); p.Datasource != want {
			t.Errorf("panel %q has the data source %v, want %v", p.Title, p.Datasource, want)
		}
		checkTargets(t, p)
		g := p.GridPos
		if g.W < 1 || g.H < 1 || g.X < 0 || g.X+g.W > dashboardColumns {
			t.Errorf("panel %q is outside of the dashboard: %+v", p.Title, g)
		}
		for x := g.X; x < g.X+g.W; x++ {
			for y := g.Y; y < g.Y+g.H; y++ {
				if other := taken[[2]int{x, y}]; other != "" {
					t.Fatalf("panels %q and %q overlap", other, p.Title)
				}
				taken[[2]int{x, y}] = p.Title
			}
		}
	}
}

// checkTargets checks the queries of a panel, without their meaning.
func checkTargets(t *testing.T, p dashboardPanel) {
	t.Helper()
	seen := map[string]bool{}
	for _, q := range p.Targets {
		if q.RefID == "" || seen[q.RefID] || q.Expr == "" || q.LegendFormat == "" {
			t.Errorf("panel %q: query %q needs a refId of its own, an expression and a legend", p.Title, q.RefID)
		}
		seen[q.RefID] = true
	}
	if len(p.Targets) == 0 {
		t.Errorf("panel %q has no query", p.Title)
	}
}

// TestDashboardVariables: each variable that the dashboard uses is one of its own, and each of these is used.
func TestDashboardVariables(t *testing.T) {
	body, err := os.ReadFile("monitoring/dashboard.json")
	if err != nil {
		t.Fatal(err)
	}
	known, used := map[string]bool{}, map[string]bool{}
	for _, v := range readDashboard(t).Templating.List {
		known[v.Name] = true
		if v.Type == "" || v.Query == "" {
			t.Errorf("variable %q has no type or no query", v.Name)
		}
	}
	for _, m := range regexp.MustCompile(`\$\{?([a-zA-Z_]+)`).FindAllStringSubmatch(string(body), -1) {
		used[m[1]] = true
		if !known[m[1]] {
			t.Errorf("there is no variable %q", m[1])
		}
	}
	for name := range known {
		if !used[name] {
			t.Errorf("nothing uses the variable %q", name)
		}
	}
}

// TestRealDashboardQueries: Prometheus' own parser reads each query, and each finds something in the measurements of
// dashboard_series.yaml, which have the labels that Prometheus gives them. The panel of alerts did not show those
// without the label cluster, such as APIServerDown.
func TestRealDashboardQueries(t *testing.T) {
	promtool := assettest.Program(t, "prometheus", "bin/promtool")
	series, err := os.ReadFile("testdata/dashboard_series.yaml")
	if err != nil {
		t.Fatal(err)
	}
	var input []any
	if err := yaml.Unmarshal(series, &input); err != nil {
		t.Fatal(err)
	}
	for _, p := range readDashboard(t).Panels {
		for _, q := range p.Targets {
			query := strings.ReplaceAll(q.Expr, "$cluster", "demo")
			check := map[string]any{
				"expr":        "count(" + query + ") > bool 0",
				"eval_time":   "90m",
				"exp_samples": []any{map[string]any{"labels": "{}", "value": 1}},
			}
			test := map[string]any{"interval": "1m", "input_series": input, "promql_expr_test": []any{check}}
			body, err := yaml.Marshal(map[string]any{"evaluation_interval": "1m", "tests": []any{test}})
			if err != nil {
				t.Fatal(err)
			}
			file := filepath.Join(t.TempDir(), "test.yaml")
			writeTestFile(t, file, string(body))
			ctx, cancel := context.WithCancel(t.Context())
			if out, err := exec.CommandContext(ctx, promtool, "test", "rules", file).CombinedOutput(); err != nil {
				t.Errorf("panel %q, %s: %v\n%s", p.Title, q.Expr, err, out)
			}
			cancel()
		}
	}
}

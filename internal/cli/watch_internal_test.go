// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"bytes"
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/slipway-k8s/slipway/internal/cluster/health"
)

// watchedApp returns an app and what it prints.
func watchedApp() (a *app, out, messages *bytes.Buffer) {
	out, messages = &bytes.Buffer{}, &bytes.Buffer{}
	at := time.Date(2026, 11, 23, 12, 0, 0, 0, time.UTC)

	return &app{Env: Env{
		Stdout: out,
		Stderr: messages,
		Getenv: func(string) string { return "" },
		Now:    func() time.Time { return at },
	}}, out, messages
}

// TestWatchLists: what get --watch prints while items appear, change and disappear, and while a reading fails.
func TestWatchLists(t *testing.T) {
	type machine struct {
		Name  string `json:"name"`
		State string `json:"state"`
	}

	item := func(name, state string) resourceItem {
		return resourceItem{name: name, cells: []string{name, state}, document: machine{name, state}}
	}
	readings := [][]resourceItem{
		{item("a", "pending"), item("b", "running")},
		{item("a", "pending"), item("b", "running")},
		nil, // fails
		nil, // fails in the same way
		{item("a", "running"), item("b", "running"), item("c", "pending")},
		{item("c", "pending")},
	}

	for format, want := range map[string]string{
		formatTable: "NAME   STATE\na      pending\nb      running\na      running\nc      pending\na      running   (deleted)\nb      running   (deleted)\n",
		formatName:  "machine/a\nmachine/b\nmachine/a\nmachine/c\n",
		formatYAML:  "name: a\nstate: pending\n---\nname: b\nstate: running\n---\nname: a\nstate: running\n---\nname: c\nstate: pending\n",
	} {
		t.Run(format, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				a, out, messages := watchedApp()
				ctx, cancel := context.WithCancel(t.Context())
				next := 0
				list := func(context.Context) ([]resourceList, error) {
					if next == len(readings) {
						cancel()
						return nil, ctx.Err()
					}

					items := readings[next]
					next++
					if items == nil {
						return nil, errors.New("connect to 127.0.0.1:1: connection refused")
					}

					return []resourceList{{kind: "machine", header: []string{"NAME", "STATE"}, items: items}}, nil
				}
				if err := (lister{a}).runGet(ctx, getOptions{format: format, watch: true}, list); err != nil {
					t.Fatal(err)
				}

				if diff := cmp.Diff(want, out.String()); diff != "" {
					t.Error(diff)
				}

				if got := strings.Count(messages.String(), "connection refused; trying again"); got != 1 {
					t.Errorf("the failure is reported %d times, want once:\n%s", got, messages)
				}
			})
		})
	}
}

// TestPrintChanges: what validate --watch prints when a check fails, gets another cause and is OK again.
func TestPrintChanges(t *testing.T) {
	t.Parallel()
	a, out, _ := watchedApp()
	report := func(valid bool, checks ...health.Check) health.Report {
		return health.Report{FormatVersion: health.FormatVersion, Valid: valid, Checks: checks, Time: a.Now()}
	}
	node := func(severity health.Severity, cause string) health.Check {
		return health.Check{Kind: "node", Name: "ip-10-0-0-1", Severity: severity, OK: severity == health.OK, Cause: cause}
	}
	reports := []health.Report{
		report(true, node(health.OK, "")),
		report(false, node(health.Failed, "its kubelet has been silent for 41s")),
		report(false, node(health.Failed, "its kubelet has been silent for 43s")),
		report(false, node(health.Failed, "its disk is full")),
		report(true, node(health.OK, "")),
	}
	for i := 1; i < len(reports); i++ {
		healthPrinter{a}.printChanges("demo", reports[i-1], reports[i])
	}

	const want = `12:00:00 FAILED   node ip-10-0-0-1: its kubelet has been silent for 41s
12:00:00 cluster demo is not healthy: 1 failed
12:00:00 FAILED   node ip-10-0-0-1: its disk is full
12:00:00 RESOLVED node ip-10-0-0-1: its kubelet has been silent for 43s
12:00:00 RESOLVED node ip-10-0-0-1: its disk is full
12:00:00 cluster demo is healthy
`
	if diff := cmp.Diff(want, out.String()); diff != "" {
		t.Error(diff)
	}
}

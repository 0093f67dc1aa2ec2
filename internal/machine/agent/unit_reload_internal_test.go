// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// shownUnits is a Runner whose systemd says of each unit what is in the map.
type shownUnits struct {
	says  map[string]string
	fails bool
	lines []string
}

func (r *shownUnits) Run(_ context.Context, name string, args ...string) (string, error) {
	r.lines = append(r.lines, name+" "+strings.Join(args, " "))
	if args[0] != "show" {
		return "", nil
	}
	if r.fails {
		return "", errors.New("no bus")
	}
	var blocks []string
	for _, unit := range args[2:] {
		blocks = append(blocks, r.says[unit]+"\n")
	}
	return strings.Join(blocks, "\n"), nil
}

// TestNewUnitsNeedNoReload: systemd reloads only units that it has read before their files changed.
func TestNewUnitsNeedNoReload(t *testing.T) {
	const (
		current = "LoadState=loaded\nNeedDaemonReload=no"
		old     = "LoadState=loaded\nNeedDaemonReload=yes"
		missing = "LoadState=not-found\nNeedDaemonReload=no"
		folder  = "/etc/systemd/system/"
	)
	for name, test := range map[string]struct {
		changed []string
		says    map[string]string
		fails   bool
		asks    string
		reloads bool
	}{
		"nothing":            {},
		"another file":       {changed: []string{"/etc/containerd/config.toml"}},
		"new units":          {changed: []string{folder + "b.service", folder + "a.service"}, says: map[string]string{"a.service": current, "b.service": current}, asks: "a.service b.service"},
		"a unit was changed": {changed: []string{folder + "b.service", folder + "a.service"}, says: map[string]string{"a.service": current, "b.service": old}, asks: "a.service b.service", reloads: true},
		"settings":           {changed: []string{folder + "a.service.d/x.conf"}, says: map[string]string{"a.service": current}, reloads: true},
		"missing until now":  {changed: []string{folder + "a.service"}, says: map[string]string{"a.service": missing}, asks: "a.service", reloads: true},
		"no answer":          {changed: []string{folder + "a.service"}, fails: true, asks: "a.service", reloads: true},
		"an empty answer":    {changed: []string{folder + "a.service"}, asks: "a.service", reloads: true},
		"a link":             {changed: []string{folder + "multi-user.target.wants/a.service"}, reloads: true},
	} {
		t.Run(name, func(t *testing.T) {
			run := &shownUnits{says: test.says, fails: test.fails}
			changed := map[string]bool{}
			for _, path := range test.changed {
				changed[path] = true
			}
			a := &Agent{}
			a.Run = run
			if err := a.reloadSystemd(t.Context(), changed); err != nil {
				t.Fatal(err)
			}
			var want []string
			if test.asks != "" {
				want = append(want, "systemctl show --property=LoadState,NeedDaemonReload "+test.asks)
			}
			if test.reloads {
				want = append(want, "systemctl daemon-reload")
			}
			if diff := cmp.Diff(want, slices.Clone(run.lines)); diff != "" {
				t.Errorf("commands (-want +got):\n%s", diff)
			}
		})
	}
}

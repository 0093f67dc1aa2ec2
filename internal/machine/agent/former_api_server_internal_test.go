// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/slipway-k8s/slipway/internal/machine/etcd"
	"github.com/slipway-k8s/slipway/internal/machine/kube"
)

// TestFormerAPIServer: after a restoration of etcd, the API server of before is killed as soon as it accepts no connections, which
// it does once the kubelet has told it to end. It was seen to take the 30 seconds that the kubelet gives it.
func TestFormerAPIServer(t *testing.T) {
	for name, c := range map[string]struct {
		runs    bool
		refuses int // the look at which it accepts no connections; 0: never
		ends    int // the look before which it has ended; 0: never
		waits   int
		want    string
	}{
		"does not run":          {want: ""},
		"is told to end":        {runs: true, refuses: 1, want: "kill -KILL 77"},
		"is told to end later":  {runs: true, refuses: 4, waits: 3, want: "kill -KILL 77"},
		"ends by itself":        {runs: true, ends: 3, waits: 3},
		"is never told":         {runs: true, waits: formerServerLooks},
		"ends before it is old": {runs: true, ends: 1, refuses: 2, waits: 1},
	} {
		t.Run(name, func(t *testing.T) {
			b := newRestoreBench(t)
			config := b.kubeConfig()
			config.EtcdURL = etcd.ClientURL
			if c.runs {
				b.put("/proc/77/cmdline", strings.Join(kube.StaticPodCommands(config)[kube.APIServer], "\x00")+"\x00", 0o444)
				b.put("/proc/stat", "cpu 1 2\nbtime 1000\n", 0o444)
				b.put("/proc/77/stat", "77 (kube-apiserver) S "+strings.Repeat("0 ", 18)+"5 1 2", 0o444)
			}

			looks := 0
			waits := 0
			b.Wait = func(context.Context, time.Duration) error {
				waits++
				if waits == c.ends {
					return os.RemoveAll(filepath.Dir(b.Root.Path("/proc/77/cmdline")))
				}

				return nil
			}
			former := newFormerAPIServer(b.Agent)
			former.listens = func(context.Context) bool {
				looks++
				return looks != c.refuses
			}
			if err := former.end(t.Context()); err != nil {
				t.Fatal(err)
			}
			if got := strings.Join(b.run.lines, "\n"); got != c.want || waits != c.waits {
				t.Errorf("ran %q after %d pauses, want %q after %d", got, waits, c.want, c.waits)
			}
		})
	}
}

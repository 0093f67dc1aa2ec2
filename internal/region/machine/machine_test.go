// SPDX-License-Identifier: Apache-2.0

package machine_test

import (
	"strings"
	"testing"
	"time"
)

const userData = `#!/bin/sh
cat /proc/uptime >/run/user-data-ran
echo "user data says hello from $(hostname)" >/dev/console
`

func TestBoot(t *testing.T) {
	b := newBench(t, userData)
	begin := time.Now()
	m := b.launch(1)
	t.Logf("PID 1 after %s", time.Since(begin))
	b.await(m.ID, "test -s /run/user-data-ran", 60*time.Second)
	t.Logf("user data ran after %s", time.Since(begin))
	b.await(m.ID, "systemctl is-system-running | grep -qx running || { systemctl --failed; systemctl list-jobs; false; }", 30*time.Second)
	t.Logf("running after %s", time.Since(begin))
	t.Log(b.mustRun(m.ID, "ps ax -o pid,rss,args; systemd-analyze blame | head -20; systemd-analyze critical-chain cloud-final.service"))
	console, err := b.host.Console(m.ID)
	if err != nil || !strings.Contains(string(console), "user data says hello from "+m.Hostname) {
		t.Errorf("console lacks the machine's line: %v\n%s", err, console)
	}
}

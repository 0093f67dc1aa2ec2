// SPDX-License-Identifier: Apache-2.0

package e2e_test

import (
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/slipway-k8s/slipway/internal/lib/asset"
)

// laterEtcd begins the version of the later etcd that is built on request.
const laterEtcd = "3.7."

// TestEtcdUpgrade upgrades etcd by a minor version, one member at a time and under load. The way back is the backup that was
// taken first: it is restored into another cluster, which has the former version.
func TestEtcdUpgrade(t *testing.T) {
	skipUnlessLong(t)
	e := newEnvironment(t)
	built := e.env["SLIPWAY_ASSETS"]
	var backup string
	e.runSteps(t, []step{
		{"a cluster with the former version", func(e *environment) {
			createCluster(e)
			e.kubectl("create", "configmap", "survivor", "--from-literal=answer=42")
		}},
		{"etcd is upgraded under load", func(e *environment) {
			e.env["SLIPWAY_ASSETS"] = e.writeLaterEtcdCatalog(built)
			backup = upgradeEtcd(e)
		}},
		{"the former version is refused", func(e *environment) {
			e.env["SLIPWAY_ASSETS"] = built
			refuseFormerEtcd(e)
		}},
		{"the backup is restored into a cluster with the former version", func(e *environment) { restoreFormerEtcd(e, backup) }},
		{"both are deleted", func(e *environment) {
			e.runSlipway("delete", "cluster", formerCluster, "--yes")
			deleteCluster(e)
		}},
	})
}

// writeLaterEtcdCatalog writes the built catalogue with the later etcd alone, and returns the path.
func (e *environment) writeLaterEtcdCatalog(built string) string {
	e.t.Helper()
	catalog := e.parseCatalog(built)
	catalog.Files = slices.DeleteFunc(catalog.Files, func(f asset.File) bool {
		return f.Name == "etcd" && !strings.HasPrefix(f.Version, laterEtcd)
	})
	if len(catalog.Versions("etcd")) != 1 {
		e.t.Fatalf("%s has no etcd %s; build it: slipway assets build --later-etcd", built, laterEtcd)
	}
	return e.writeParsedCatalog(catalog, "later.yaml")
}

// etcdVersions returns the versions of etcd that the machines of the control plane run, without duplicates.
func (e *environment) etcdVersions() []string {
	e.t.Helper()
	var out []string
	for id := range e.listMachines("control-plane") {
		text := e.mustRunInMachine(id, "/proc/$(pgrep -x etcd | head -1)/exe --version")
		first, _, _ := strings.Cut(text, "\n")
		out = append(out, strings.TrimPrefix(first, "etcd Version: "))
	}
	slices.Sort(out)
	return slices.Compact(out)
}

// upgradeEtcd upgrades the cluster to the later etcd, and returns the backup that was taken before.
func upgradeEtcd(e *environment) string {
	if v := e.etcdVersions(); len(v) != 1 || strings.HasPrefix(v[0], laterEtcd) {
		e.t.Fatalf("the members run %v before", v)
	}
	printed := e.upgradeUnderLoad("etcd upgrade")
	taken := regexp.MustCompile(`took backup (\S+) of etcd`).FindStringSubmatch(printed)
	if taken == nil {
		e.t.Fatal("no backup was taken before the upgrade")
	}
	if v := e.etcdVersions(); len(v) != 1 || !strings.HasPrefix(v[0], laterEtcd) {
		e.t.Errorf("the members run %v afterwards", v)
	}
	checkData(e)
	e.waitHealthy(5 * time.Minute)
	e.runSlipway("etcd", "snapshot", clusterName)
	e.t.Log("\n" + e.runSlipway("etcd", "status", clusterName))
	return taken[1]
}

// refuseFormerEtcd: an upgrade to a catalogue with the former version changes nothing.
func refuseFormerEtcd(e *environment) {
	r := e.runProgram(e.slipway, "upgrade", "cluster", clusterName, "--yes")
	if e.t.Logf("\n%s%s", r.out, r.err); r.code == 0 || !strings.Contains(r.err, "etcd") {
		e.t.Errorf("exit status %d", r.code)
	}
	if v := e.etcdVersions(); len(v) != 1 || !strings.HasPrefix(v[0], laterEtcd) {
		e.t.Errorf("the members run %v", v)
	}
}

// restoreFormerEtcd restores the backup into a new cluster of one machine with the former version.
func restoreFormerEtcd(e *environment, backup string) {
	e.createOneMachine(formerCluster)
	e.runSlipway("validate", "cluster", formerCluster, "--wait", "5m")
	start := time.Now()
	e.runSlipway("etcd", "restore", backup, "--from", clusterName, "--name", formerCluster, "--yes")
	os.Remove(e.kubeconfigOf(formerCluster))
	e.runSlipway("export", "kubeconfig", formerCluster, "--kubeconfig", e.kubeconfigOf(formerCluster))
	e.runSlipway("validate", "cluster", formerCluster, "--wait", "8m")
	e.t.Logf("COUNT the backup of before the upgrade is restored after %s", time.Since(start).Round(time.Second))
	if got := e.kubectlOfFormer("get", "configmap", "survivor", "-o", "jsonpath={.data.answer}"); got != "42" {
		e.t.Errorf("the ConfigMap contains %q, want 42", got)
	}
	if out := e.runSlipway("etcd", "status", formerCluster); strings.Contains(out, laterEtcd) {
		e.t.Errorf("the restored cluster has the later version:\n%s", out)
	}
}

// SPDX-License-Identifier: Apache-2.0

package e2e_test

import (
	"cmp"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/slipway-k8s/slipway/internal/lib/asset"
)

// TestComponentUpgrade upgrades etcd, containerd and the CNI plugins of a highly available cluster under load, and the image
// of its machines, but not Kubernetes: another asset catalogue has other default versions of the components, and the image
// is a copy of the former one.
func TestComponentUpgrade(t *testing.T) {
	skipUnlessLong(t)
	e := newEnvironment(t)
	built := e.env["SLIPWAY_ASSETS"]
	e.env["SLIPWAY_ASSETS"] = e.writeEarlierCatalog(built)
	e.runSteps(t, []step{
		{"a cluster with earlier components", func(e *environment) { createWithEarlierComponents(e, built) }},
		{"the groups get another image", setCopiedImage},
		{"the components and the image are upgraded under load", func(e *environment) {
			e.env["SLIPWAY_ASSETS"] = built // the image was set with the catalogue that the cluster has
			upgradeComponents(e)
		}},
		{"delete leaves nothing", deleteCluster},
	})
}

// upgradedComponents returns the components of which an earlier version is built too.
func upgradedComponents() []string { return []string{"etcd", "containerd", "cni-plugins"} }

// createWithEarlierComponents creates a cluster with a catalogue whose default components are the earlier ones of those that
// are built.
func createWithEarlierComponents(e *environment, built string) {
	e.runSlipway("state", "init", "--yes")
	e.runSlipway("create", "cluster", clusterName, "--zones", region+"a,"+region+"b,"+region+"c", "--yes")
	e.runSlipway("apply", clusterName, "--yes")
	e.waitHealthy(10 * time.Minute)
	e.exportKubeconfig()
	e.checkComponents(e.readCatalog(built), 1)
}

// readCatalog reads an asset catalogue in which each upgraded component has two versions, the later one first.
func (e *environment) readCatalog(path string) asset.Catalog {
	e.t.Helper()
	catalog := e.parseCatalog(path)
	catalog.Files = slices.DeleteFunc(catalog.Files, func(f asset.File) bool {
		return f.Name == "etcd" && strings.HasPrefix(f.Version, laterEtcd)
	})
	for _, name := range upgradedComponents() {
		if versions := catalog.Versions(name); len(versions) != 2 || asset.CompareVersions(versions[0], versions[1]) <= 0 {
			e.t.Fatalf("%s has the versions %v in %s; build an earlier one: slipway assets build --earlier-components", name, versions, path)
		}
	}
	return catalog
}

// writeEarlierCatalog writes the built catalogue with the earlier version of each component as its default, and returns
// the path.
func (e *environment) writeEarlierCatalog(built string) string {
	e.t.Helper()
	catalog := e.readCatalog(built)
	slices.SortStableFunc(catalog.Files, func(a, b asset.File) int {
		if a.Name != b.Name || !slices.Contains(upgradedComponents(), a.Name) {
			return cmp.Compare(a.Name, b.Name)
		}
		return asset.CompareVersions(a.Version, b.Version)
	})
	return e.writeParsedCatalog(catalog, "earlier.yaml")
}

// parseCatalog reads an asset catalogue.
func (e *environment) parseCatalog(path string) asset.Catalog {
	e.t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		e.t.Fatal(err)
	}
	catalog, err := asset.ParseCatalog(text)
	if err != nil {
		e.t.Fatal(err)
	}
	return catalog
}

// writeParsedCatalog writes an asset catalogue to a file of this name, and returns its path.
func (e *environment) writeParsedCatalog(catalog asset.Catalog, name string) string {
	e.t.Helper()
	text, err := catalog.YAML()
	if err != nil {
		e.t.Fatal(err)
	}
	path := filepath.Join(e.t.TempDir(), name)
	writeFile(e.t, path, string(text))
	return path
}

// checkComponents checks what the machines run: the version of each component at an index of the catalogue's versions.
func (e *environment) checkComponents(catalog asset.Catalog, index int) {
	e.t.Helper()
	runtimes := strings.Fields(e.kubectl("get", "nodes", "-o", "jsonpath={.items[*].status.nodeInfo.containerRuntimeVersion}"))
	if want := "containerd://" + catalog.Versions("containerd")[index]; len(runtimes) != 5 || len(slices.Compact(runtimes)) != 1 || strings.Replace(runtimes[0], "://v", "://", 1) != want {
		e.t.Errorf("container runtimes %v, want 5 of %s", runtimes, want)
	}
	plugins := "v" + catalog.Versions("cni-plugins")[index]
	for _, role := range []string{"control-plane", "worker"} {
		for id := range e.listMachines(role) {
			if out := e.mustRunInMachine(id, "/opt/cni/bin/host-local 2>&1"); !strings.Contains(out, plugins) {
				e.t.Errorf("machine %s has the CNI plugins %q, want %s", id, out, plugins)
			}
		}
	}
	if got, want := e.etcdVersions(), catalog.Versions("etcd")[index]; !slices.Equal(got, []string{want}) {
		e.t.Errorf("the members run etcd %v, want %s", got, want)
	}
}

// setCopiedImage copies the image of the machines and sets the copy in the manifests of all groups. Running machines keep
// theirs.
func setCopiedImage(e *environment) {
	before := e.machineImages()
	if len(before) != 1 {
		e.t.Fatalf("the machines have the images %v", before)
	}
	e.runProgram("aws", "ec2", "copy-image", "--source-image-id", before[0], "--source-region", region, "--name", copiedImageName)
	e.runProgram("aws", "ec2", "wait", "image-available", "--owners", "self")
	groups := e.runSlipway("get", "groups", clusterName, "-o", "yaml")
	image := regexp.MustCompile(`(?m)^  image: .*\n`).ReplaceAllString(groups, "")
	file := filepath.Join(e.t.TempDir(), "groups.yaml")
	writeFile(e.t, file, strings.ReplaceAll(image, "\nspec:\n", "\nspec:\n  image: "+e.copiedImage()+"\n"))
	e.runSlipway("replace", "-f", file, "--name", clusterName, "--yes")
	e.runSlipway("apply", clusterName, "--yes")
	if now := e.machineImages(); !slices.Equal(now, before) {
		e.t.Errorf("running machines have the images %v, before %v", now, before)
	}
}

// copiedImageName is the name of the copy of the machines' image.
const copiedImageName = "e2e-copy"

// copiedImage returns the id of the copy of the machines' image.
func (e *environment) copiedImage() string {
	e.t.Helper()
	r := e.runProgram("aws", "ec2", "describe-images", "--owners", "self", "--filters", "Name=name,Values="+copiedImageName,
		"--query", "Images[].ImageId", "--output", "text")
	if ids := strings.Fields(r.out); r.code == 0 && len(ids) == 1 {
		return ids[0]
	}
	e.t.Fatalf("%d images are named %s: %s%s", len(strings.Fields(r.out)), copiedImageName, r.out, r.err)
	return ""
}

// machineImages returns the images of the cluster's running machines, sorted.
func (e *environment) machineImages() []string {
	e.t.Helper()
	r := e.runProgram("aws", "ec2", "describe-instances", "--filters", "Name=instance-state-name,Values=running",
		"--query", "Reservations[].Instances[].ImageId", "--output", "text")
	if r.code != 0 {
		e.t.Fatal(r.err)
	}
	images := strings.Fields(r.out)
	slices.Sort(images)
	return slices.Compact(images)
}

// upgradeUnderLoad upgrades the cluster while it is used, and returns what the command printed.
func (e *environment) upgradeUnderLoad(name string) string {
	e.t.Helper()
	before := e.listMachines("control-plane")
	load := e.putUnderLoad(name, anyKey(e.listMachines("worker")))
	begin := time.Now()
	ended := make(chan commandResult, 1)
	go func() {
		r := e.runProgram(e.slipway, "upgrade", "cluster", clusterName, "--yes")
		e.t.Logf("the upgrade ended with %d\n%s%s", r.code, r.out, r.err)
		ended <- r
	}()
	load.moveClient(e.waitForOther("control-plane", before))
	r := <-ended
	if r.code != 0 {
		e.t.Fatalf("exit status %d", r.code)
	}
	e.t.Logf("COUNT %s: five machines in %s", name, time.Since(begin).Round(time.Second))
	load.stop(maxWriteGap())
	return r.out + r.err
}

// upgradeComponents upgrades the cluster to the built catalogue: the same version of Kubernetes, other components.
func upgradeComponents(e *environment) {
	catalog := e.readCatalog(e.env["SLIPWAY_ASSETS"])
	before := e.listMachines("control-plane")
	workers := e.listMachines("worker")
	kubelets := e.kubeletVersions()
	printed := e.upgradeUnderLoad("component upgrade")
	for _, name := range upgradedComponents() {
		versions := catalog.Versions(name)
		if !strings.Contains(printed, versions[1]) || !strings.Contains(printed, versions[0]) {
			e.t.Errorf("the plan does not say that %s goes from %s to %s", name, versions[1], versions[0])
		}
	}
	if kept := countOld(before, e.listMachines("control-plane")) + countOld(workers, e.listMachines("worker")); kept > 0 {
		e.t.Errorf("%d machines were not replaced", kept)
	}
	if now := e.kubeletVersions(); fmt.Sprint(now) != fmt.Sprint(kubelets) {
		e.t.Errorf("kubelets %v, before %v", now, kubelets)
	}
	e.waitHealthy(5 * time.Minute)
	e.checkComponents(catalog, 0)
	if now := e.machineImages(); !slices.Equal(now, []string{e.copiedImage()}) {
		e.t.Errorf("the machines have the images %v, want %s", now, e.copiedImage())
	}
	checkEmptyPlan(e)
}

// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"bytes"
	"path/filepath"
	"slices"
	"strings"

	"github.com/slipway-k8s/slipway/api/v1alpha1"
	"github.com/slipway-k8s/slipway/internal/lib/pki"
	"github.com/slipway-k8s/slipway/internal/machine/etcd"
	"github.com/slipway-k8s/slipway/internal/machine/kube"
	"github.com/slipway-k8s/slipway/internal/machine/node"
)

// withDocument returns an agent of the same machine with another document. It shares the machine's files and programs,
// and runs no tasks.
func (a *Agent) withDocument(d node.Document) *Agent {
	return &Agent{
		Boot:     a.Boot,
		Root:     a.Root,
		Run:      a.Run,
		Open:     a.Open,
		Metadata: a.Metadata,
		Registry: a.Registry,
		Images:   a.Images,
		EC2:      a.EC2,
		Store:    a.Store,
		Sealer:   a.Sealer,
		Sign:     a.Sign,
		HTTP:     a.HTTP,
		Report:   a.Report,
		Log:      a.Log,
		Now:      a.Now,
		Wait:     a.Wait,
		doc:      d,
		instance: a.instance,
		bundle:   a.bundle,
		former:   a.former,
	}
}

// machineFiles returns all files whose content depends on the node document, except certificates.
func (a *Agent) machineFiles() ([]File, error) {
	if a.doc.Role != v1alpha1.RoleControlPlane {
		files, err := hostFiles(a.kubeConfig(), requiredModules(a.doc.Network), a.sysctls())
		return append(files, a.authorityFile()), err
	}

	files, err := a.controlPlaneFiles()
	if err != nil {
		return nil, err
	}

	slot, ok := a.doc.Slot(a.Boot.Slot)
	if !ok {
		return nil, newNotReadyError("the document has no slot %q", a.Boot.Slot)
	}

	pods, err := a.staticPodFiles()

	return slices.Concat(files, a.etcdFiles(slot), pods), err
}

// authorityFile returns the file with the CA that workers trust.
func (a *Agent) authorityFile() File {
	return File{
		Path: kube.PKIDir + "/" + pki.KubernetesCA + ".crt",
		Body: []byte(a.doc.Trust.KubernetesCA),
		Mode: 0o644,
	}
}

// changedFiles returns the files of to that differ from those of from, sorted so that static pods come last: the
// kubelet restarts a pod as soon as its file changes.
func changedFiles(from, to []File) []File {
	was := map[string]File{}
	for _, f := range from {
		was[f.Path] = f
	}

	var out []File
	for _, f := range to {
		old, ok := was[f.Path]
		if !ok || old.Mode != f.Mode || old.UID != f.UID || !bytes.Equal(old.Body, f.Body) {
			out = append(out, f)
		}
	}

	slices.SortStableFunc(out, func(a, b File) int { return podRank(a.Path) - podRank(b.Path) })

	return out
}

func podRank(path string) int {
	if podOfManifest(path) != "" {
		return 1
	}

	return 0
}

// podOfManifest returns the name of the static pod that a file defines; empty for other files.
func podOfManifest(path string) string {
	name, found := strings.CutPrefix(path, kube.ConfigDir+"/manifests/")
	if !found {
		return ""
	}

	return strings.TrimSuffix(name, ".yaml")
}

// componentsReading returns the components that have to restart when a file has changed.
func componentsReading(path string) []string {
	out := slices.Concat(unitsReading(path), staticPodsReading(path))
	if pod := podOfManifest(path); pod != "" {
		out = append(out, pod)
	}

	switch path {
	case kube.PKIDir + "/kubernetes-ca.crt":
		out = append(out, node.ComponentKubelet)
	case etcd.PKIDir + "/client-ca.crt", etcd.PKIDir + "/peer-ca.crt":
		out = append(out, node.ComponentEtcd)
	}

	// Programs read the certificates of authorities when they start.
	if directory, name := filepath.Split(path); strings.HasSuffix(name, "-ca.crt") {
		component := filepath.Base(directory)
		if slices.Contains(kube.StaticPodNames(), component) && directory == kube.ComponentDir(component)+"/" {
			out = append(out, component)
		}
	}

	return out
}

// isReadBy reports whether a component has to restart because of one of the changed files.
func isReadBy(component string, changed map[string]bool) bool {
	for path := range changed {
		if slices.Contains(componentsReading(path), component) {
			return true
		}
	}

	return false
}

// componentsOf returns the components that read one of the files, in the order of their restart.
func componentsOf(files []File) []string {
	var out []string
	for _, component := range node.RestartOrder() {
		if slices.ContainsFunc(files, func(f File) bool {
			return slices.Contains(componentsReading(f.Path), component)
		}) {
			out = append(out, component)
		}
	}

	return out
}

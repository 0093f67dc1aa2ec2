// SPDX-License-Identifier: Apache-2.0

package e2e_test

import (
	"encoding/base64"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"
)

// addonChannel has an add-on that becomes healthy, and one whose image does not exist.
const addonChannel = `apiVersion: slipway.dev/v1alpha1
kind: AddonChannel
metadata: {name: e2e}
spec:
  addons:
  - {name: probe, version: %s, namespace: addon, source: {manifest: probe.yaml}, timeout: 2m}
  - {name: broken, version: 1.0.0, namespace: addon, source: {manifest: broken.yaml}, timeout: 12s, dependsOn: [probe]}
`

// addonWorkload is a Deployment of an image.
const addonWorkload = `apiVersion: apps/v1
kind: Deployment
metadata: {name: %[1]s}
spec:
  replicas: %[3]d
  selector: {matchLabels: {app: addon-%[1]s}}
  template:
    metadata: {labels: {app: addon-%[1]s}}
    spec:
      terminationGracePeriodSeconds: 1
      containers: [{name: main, image: "%[2]s"}]
---
apiVersion: v1
kind: Namespace
metadata: {name: addon}
`

// checkAddons installs, updates and deletes add-ons on machines with real controllers and kubelets.
func checkAddons(e *environment) {
	dir := e.t.TempDir()
	channel := filepath.Join(dir, "channel.yaml")
	write := func(name, content string) {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(content), 0o600); err != nil {
			e.t.Fatal(err)
		}
	}
	write("channel.yaml", fmt.Sprintf(addonChannel, "1.0.0"))
	write("probe.yaml", fmt.Sprintf(addonWorkload, "probe", probeImage, 1))
	broken, _, _ := strings.Cut(fmt.Sprintf(addonWorkload, "broken", "198.18.0.1:5000/localhost/none:v1", 1), "---")
	write("broken.yaml", broken)

	result := e.runProgram(e.slipway, "addons", "apply", clusterName, "-f", channel, "--yes")
	for _, want := range []string{"probe: 1.0.0 is applied and healthy", "Deployment addon/broken is not healthy after 12s", "ImagePull"} {
		if result.code != 1 || !strings.Contains(result.err, want) {
			e.t.Errorf("exit status %d, want 1 and %s:\n%s", result.code, want, result.err)
		}
	}
	if got := e.kubectl("get", "deployment", "-n", "addon", "probe", "-o", "jsonpath={.status.availableReplicas}"); got != "1" {
		e.t.Errorf("the healthy add-on has %q available pods", got)
	}

	write("channel.yaml", strings.Split(fmt.Sprintf(addonChannel, "1.1.0"), "  - {name: broken")[0])
	write("probe.yaml", fmt.Sprintf(addonWorkload, "probe", probeImage, 2))
	e.runSlipway("addons", "prune", clusterName, "-f", channel, "--yes")
	e.runSlipway("addons", "apply", clusterName, "-f", channel, "--yes")
	result = e.runProgram(e.slipway, "addons", "diff", clusterName, "-f", channel)
	if result.code != 0 || result.out != "" {
		e.t.Errorf("exit status %d after an apply, want 0:\n%s%s", result.code, result.out, result.err)
	}

	e.kubectl("scale", "deployment", "-n", "addon", "probe", "--replicas=3")
	result = e.runProgram(e.slipway, "addons", "apply", clusterName, "-f", channel, "--yes")
	if result.code != 1 || !strings.Contains(result.err, "Deployment addon/probe: another field manager owns fields of the object: .spec.replicas is owned by kubectl") {
		e.t.Errorf("exit status %d after a manual change:\n%s", result.code, result.err)
	}
	e.runSlipway("addons", "apply", clusterName, "-f", channel, "--yes", "--force-conflicts")
	e.t.Log("\n" + e.runSlipway("addons", "get", clusterName))
	checkSystemAddons(e)

	e.runSlipway("addons", "delete", "probe", "--name", clusterName, "--yes", "--delete-namespaces-and-crds")
	if got := e.kubectl("get", "namespace", "addon", "--ignore-not-found", "-o", "name"); got != "" {
		e.t.Errorf("%s is left", got)
	}
}

// checkSystemAddons: what every cluster has is applied by one machine, which corrects a change of somebody else.
func checkSystemAddons(e *environment) {
	for _, name := range []string{"slipway-rules", "slipway-kube-proxy", "slipway-flannel", "slipway-coredns"} {
		e.waitUntil(name+" is ready", time.Minute, func() error {
			secret := e.kubectl("get", "secret", "-n", "kube-system", "slipway-addon-"+name, "-o", "jsonpath={.data.inventory\\.json}")
			text, err := base64.StdEncoding.DecodeString(secret)
			if err == nil && !strings.Contains(string(text), `"state":"Ready"`) {
				err = fmt.Errorf("inventory %s", text)
			}

			return err
		})
	}

	holder := e.kubectl("get", "lease", "-n", "kube-system", "slipway-addons", "-o", "jsonpath={.spec.holderIdentity}")
	if !strings.HasPrefix(holder, "i-") {
		e.t.Errorf("add-ons are applied by %q", holder)
	}

	e.kubectl("label", "service", "-n", "kube-system", "kube-dns", "k8s-app=other", "--overwrite")
	e.waitUntil("the label of Service kube-dns is corrected", time.Minute, func() error {
		label := e.kubectl("get", "service", "-n", "kube-system", "kube-dns", "-o", "jsonpath={.metadata.labels.k8s-app}")
		if label != "kube-dns" {
			return fmt.Errorf("it is %s", label)
		}

		return nil
	})
	result := e.runProgram(e.slipway, "addons", "delete", "slipway-coredns", "--name", clusterName, "--yes")
	if result.code != 1 || !strings.Contains(result.err, "add-on slipway-coredns is part of every cluster") {
		e.t.Errorf("exit status %d:\n%s", result.code, result.err)
	}
}

// SPDX-License-Identifier: Apache-2.0

package attack_test

import (
	"encoding/json"
	"strings"
	"testing"
)

// registryElsewhere has the images of a cluster come from the registry of an account of somebody else.
const registryElsewhere = "  assets: {containerRegistry: 444455556666.dkr.ecr.us-east-1.amazonaws.com/mirror}\n  networking:\n"

// printedBoundary returns what 'slipway iam boundary' prints, and its messages.
func (l *lab) printedBoundary(args ...string) (name, document, messages string) {
	l.Helper()
	out, errs, code := l.slipway(caller{}, append([]string{"iam", "boundary", "-o", "json"}, args...)...)
	var b struct {
		Name     string
		Document json.RawMessage
	}
	if err := json.Unmarshal([]byte(out), &b); err != nil {
		l.Fatalf("exit %d, %v: %s", code, err, errs)
	}

	return b.Name, string(b.Document), errs
}

// TestBoundaryOfUnsignedManifests: whoever can write to the bucket deletes the signature, and names a registry of their own
// account and a store of their own: an administrator then attaches a boundary that lets all machines pull from there. Seen to
// succeed: both were in what is printed. It now has what the cluster's own authority signed, and tells what it has not.
func TestBoundaryOfUnsignedManifests(t *testing.T) {
	l := newLab(t)
	l.createCluster()
	w := l.writer()
	const place = "  configStore: {base: s3://payroll/team}\n"
	restore := w.edit("cluster.yaml", "  networking:\n", place+registryElsewhere)
	signature := w.read("signature.json")
	w.remove("signature.json")

	check := func(what string) {
		t.Helper()
		for _, args := range [][]string{{"demo"}, nil} {
			name, document, told := l.printedBoundary(args...)
			if strings.Contains(document, "444455556666") {
				t.Errorf("%s: slipway iam boundary %s: machines may pull from the other account", what, args)
			}

			if warning := "registry account 444455556666"; !strings.Contains(told, warning) || !strings.Contains(told, "left out") {
				t.Errorf("%s: slipway iam boundary %s: %q is not told:\n%s", what, args, warning, told)
			}

			if name != "slipway-machines-"+bucket || strings.Contains(document, "payroll") {
				t.Errorf("%s: it is the boundary %s:\n%s", what, name, document)
			}
		}
	}
	check("a deleted signature")

	restore()
	w.put("signature.json", signature)
	w.edit("cluster.yaml", "  networking:\n", registryElsewhere)
	l.forgeEverything()
	check("the signature of an attacker")
}

// TestBoundaryOfSignedManifests: what an operator of the cluster signed is in the boundary, for its machine store too. No attack: what
// the check of unsigned manifests must not break.
func TestBoundaryOfSignedManifests(t *testing.T) {
	l := newLab(t)
	text := strings.Replace(placesCluster, "  networking:\n", registryElsewhere, 1)
	l.must(caller{}, 0, "create", "-f", l.temporaryFile("demo.yaml", text), "--yes")
	for _, args := range [][]string{{"demo"}, nil} {
		name, document, told := l.printedBoundary(args...)
		if !strings.Contains(document, "444455556666") || strings.Contains(told, "left out") {
			t.Errorf("slipway iam boundary %s: %s\n%s", args, told, document)
		}

		if isOfStore := name == "slipway-machines-payroll"; isOfStore != (args != nil) {
			t.Errorf("slipway iam boundary %s: %s", args, name)
		}
	}
}

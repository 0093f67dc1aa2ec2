// SPDX-License-Identifier: Apache-2.0

package attack_test

import (
	"strings"
	"testing"

	"github.com/slipway-k8s/slipway/internal/infra/iampolicy"
	"github.com/slipway-k8s/slipway/internal/region/regiontest"
)

// payrollZone is a hosted zone of others.
const payrollZone = "Z0123456789ABCDEFGHIJ"

// placesInSpec is the part of a manifest that names a hosted zone and two buckets of others.
const placesInSpec = `  configStore: {base: s3://payroll/team}
  dnsZone: ` + payrollZone + `
  topology: {dns: {type: Public}}
  serviceAccountIssuerDiscovery: {discoveryStore: s3://payroll-oidc/prod}
`

// placesCluster is a cluster whose manifest names places of others.
const placesCluster = `apiVersion: slipway.dev/v1alpha1
kind: Cluster
metadata: {name: demo}
spec:
` + placesInSpec + `  api: {publicName: www.example.org, loadBalancer: {type: ElasticIP}}
  networking:
    subnets: [{name: public-a, type: Public, zone: us-east-1a}]
` + smallGroups

// rightsElsewhere are what the manifest above has an operator do with the zone and the buckets of others, with a part of the
// message that tells an administrator. The value of reads is whether a reader may do it too.
func rightsElsewhere() []struct {
	step
	told  string
	reads bool
} {
	const role = "arn:aws:iam::" + regiontest.AccountID + ":role" + rolePath + "demo.worker.us-east-1"
	limit := map[string][]string{
		"iam:PermissionsBoundary": {"arn:aws:iam::" + regiontest.AccountID + ":policy/slipway/slipway-machines-payroll"},
	}

	return []struct {
		step
		told  string
		reads bool
	}{
		{changeRecord("www.example.org"), "change records of www.example.org in hosted zone " + payrollZone, false},
		{on("route53:ListResourceRecordSets", "arn:aws:route53:::hostedzone/Z9"), "the records of all hosted zones", true},
		{on("s3:PutObject", "arn:aws:s3:::payroll/team/demo/cluster.yaml"), "s3://payroll/team", false},
		{on("s3:GetObject", "arn:aws:s3:::payroll/team/demo/cluster.yaml"), "s3://payroll/team", true},
		{on("s3:ListBucket", "arn:aws:s3:::payroll"), "s3://payroll/team", true},
		{step{"iam:CreateRole", role, limit}, "slipway-machines-payroll", false},
		{on("s3:PutObject", "arn:aws:s3:::payroll-oidc/prod/demo/openid/v1/jwks"), "s3://payroll-oidc/prod", false},
		{on("s3:GetObject", "arn:aws:s3:::payroll-oidc/prod/demo/openid/v1/jwks"), "s3://payroll-oidc/prod", true},
		{
			on(
				"iam:DeleteOpenIDConnectProvider",
				"arn:aws:iam::"+regiontest.AccountID+":oidc-provider/payroll-oidc.s3.us-east-1.amazonaws.com/prod/demo",
			),
			"oidc-provider/payroll-oidc.s3.us-east-1.amazonaws.com/prod/demo",
			false,
		},
	}
}

// checkElsewhere checks that policies of an operator or a reader allow all or none of what the manifest names.
func (l *lab) checkElsewhere(docs []iampolicy.Policy, messages string, isReader, want bool) {
	l.Helper()
	said := "left out: operators may not "
	if want {
		said = "warning: operators may "
	}

	if isReader {
		said = strings.Replace(said, "operators", "readers", 1)
	}

	for _, right := range rightsElsewhere() {
		if isReader && !right.reads {
			continue
		}

		if got := (escalation{steps: []step{right.step}}).allowed(l.parse(docs), nil); got != want {
			l.Errorf("reader %t: %s on %s is allowed: %t", isReader, right.action, right.resource, got)
		}

		isTold := false
		for line := range strings.Lines(messages) {
			isTold = isTold || strings.HasPrefix(line, said) && strings.Contains(line, right.told)
		}

		if !isTold {
			l.Errorf("reader %t: no line begins with %q and has %q:\n%s", isReader, said, right.told, messages)
		}
	}
}

// TestManifestsChooseNoPlaces: who writes manifests names a hosted zone, a bucket or an issuer of somebody else, and an
// administrator attaches the policies that the manifests shape. Without the flag, all of these rights were seen in what
// is printed, for operators and for readers. Seen to succeed in this way.
func TestManifestsChooseNoPlaces(t *testing.T) {
	l := newLab(t)
	l.must(caller{}, 0, "create", "-f", l.temporaryFile("demo.yaml", placesCluster), "--yes")

	for _, isReader := range []bool{false, true} {
		args := []string{"demo"}
		if isReader {
			args = append(args, "--read-only")
		}

		_, errs, _ := l.slipway(caller{}, append([]string{"iam", "operator-policy"}, args...)...)
		l.checkElsewhere(l.policies(args...), errs, isReader, false)
		if !strings.Contains(errs, "--allow-existing") {
			t.Errorf("nothing says how to allow it:\n%s", errs)
		}

		args = append(args, "--allow-existing")
		_, errs, _ = l.slipway(caller{}, append([]string{"iam", "operator-policy"}, args...)...)
		l.checkElsewhere(l.policies(args...), errs, isReader, true)
	}
}

// TestManifestsChooseNoZones: a manifest that has Slipway create hosted zones makes the policies allow changes of all zones of
// the account, since IAM knows no tags of zones. Seen in what is printed without the flag. Seen to succeed in this way.
func TestManifestsChooseNoZones(t *testing.T) {
	l := newLab(t)
	l.createCluster()
	plain := l.must(caller{}, 0, "get", "clusters", "demo", "-o", "yaml")
	steps := map[string]step{
		"delete a zone of others":   on("route53:DeleteHostedZone", "arn:aws:route53:::hostedzone/"+payrollZone),
		"take a zone from its VPC":  on("route53:DisassociateVPCFromHostedZone", "arn:aws:route53:::hostedzone/"+payrollZone),
		"change a record of others": changeRecord("api.demo.example.org"),
	}

	for what, replacement := range map[string][2]string{
		"a zone of the API":             {"  networking:\n", "  dnsZone: example.org\n  topology: {dns: {type: Private}}\n  networking:\n"},
		"a zone of the members of etcd": {"discovery: Tags", "discovery: DNS"},
	} {
		text := strings.Replace(plain, replacement[0], replacement[1], 1)
		if text == plain {
			t.Fatalf("%s: the manifest has no %q:\n%s", what, replacement[0], plain)
		}

		l.must(caller{}, 0, "replace", "-f", l.temporaryFile("demo.yaml", text), "--yes")
		_, told, _ := l.slipway(caller{}, "iam", "operator-policy", "demo")
		for name, s := range steps {
			if (escalation{steps: []step{s}}).allowed(l.parse(l.policies("demo")), nil) {
				t.Errorf("%s: operators may %s", what, name)
			}
		}

		if want := "left out: operators may not create hosted zones"; !strings.Contains(told, want) {
			t.Errorf("%s: %q is not told:\n%s", what, want, told)
		}

		if !(escalation{steps: []step{steps["delete a zone of others"]}}).allowed(l.parse(l.policies("demo", "--allow-existing")), nil) {
			t.Errorf("%s: with the flag, operators cannot delete the zone", what)
		}
	}
}

// TestDeletedSignatureShapesNoPolicy: whoever can write to the bucket deletes the signature and writes manifests of their
// own. Policies with the zone and the buckets of these manifests were seen to be printed. Now nothing is printed that depends on
// manifests which nobody signed, and the error says how to sign them; what does not depend on them still is.
func TestDeletedSignatureShapesNoPolicy(t *testing.T) {
	l := newLab(t)
	l.createCluster()
	w := l.writer()
	signature := w.read("signature.json")
	restore := w.edit("cluster.yaml", "  networking:\n", strings.Replace(placesInSpec, payrollZone, "example.org", 1)+"  networking:\n")
	w.remove("signature.json")

	for _, flags := range [][]string{nil, {"--read-only"}, {"--allow-existing"}} {
		args := append([]string{"iam", "operator-policy", "demo"}, flags...)
		l.refused("a deleted signature", caller{}, args, "demo/signature.json does not exist", unsigned, "slipway state sign demo")
	}

	for _, flags := range [][]string{{"--deletion"}, {"--state-init"}, {"--discovery-init", "s3://example-oidc/prod"}} {
		l.must(caller{}, 0, append([]string{"iam", "operator-policy", "demo"}, flags...)...)
	}

	restore()
	w.put("signature.json", signature)
	l.must(caller{}, 0, "iam", "operator-policy", "demo")
	l.makeOld()
	l.refused("a cluster of an older Slipway", caller{}, []string{"iam", "operator-policy", "demo"}, "slipway state sign demo")
	l.must(caller{}, 0, "state", "sign", "demo", "--yes")
	l.must(caller{}, 0, "iam", "operator-policy", "demo", "--allow-existing")
}

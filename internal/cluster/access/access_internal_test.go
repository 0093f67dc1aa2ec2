// SPDX-License-Identifier: Apache-2.0

package access

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	elb "github.com/aws/aws-sdk-go-v2/service/elasticloadbalancingv2"
	elbtypes "github.com/aws/aws-sdk-go-v2/service/elasticloadbalancingv2/types"
	"github.com/google/go-cmp/cmp"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/slipway-k8s/slipway/internal/infra/awskind"
	"github.com/slipway-k8s/slipway/internal/lib/diag"
	"github.com/slipway-k8s/slipway/internal/lib/pki"
)

func someAccess(t *testing.T) pki.KubeconfigOptions {
	t.Helper()
	key, err := pki.NewKey("k")
	if err != nil {
		t.Fatal(err)
	}
	ca, err := pki.NewCA("kubernetes-ca", "demo", key, time.Now())
	if err != nil {
		t.Fatal(err)
	}
	cert, err := pki.IssueLeaf(ca, pki.Leaf{CN: "admin", Usages: []pki.Usage{pki.ClientUsage}, TTL: time.Hour}, key.Public(), time.Now())
	if err != nil {
		t.Fatal(err)
	}
	keyPEM, err := key.PEM()
	if err != nil {
		t.Fatal(err)
	}
	return pki.KubeconfigOptions{
		Name: "demo", Server: "https://127.0.0.1:443", TLSServerName: APIServerName, CAPEM: ca.CertsPEM(), CertPEM: cert, KeyPEM: keyPEM,
	}
}

const others = `apiVersion: v1
kind: Config
current-context: work
clusters:
- {name: work, cluster: {server: https://work.example.com, certificate-authority-data: Zm9v}}
users:
- {name: work, user: {token: not-ours, exec: {apiVersion: client.authentication.k8s.io/v1, command: login, interactiveMode: Never}}}
contexts:
- {name: work, context: {cluster: work, user: work, namespace: team}}
`

func TestMergeKubeconfigKeepsOthers(t *testing.T) {
	file := filepath.Join(t.TempDir(), "new", "config")
	access := someAccess(t)
	if err := MergeKubeconfig(file, access); err != nil { // made where there is none
		t.Fatal(err)
	}
	if err := os.WriteFile(file, []byte(others), 0o644); err != nil {
		t.Fatal(err)
	}
	before, err := clientcmd.LoadFromFile(file)
	if err != nil {
		t.Fatal(err)
	}
	for range 2 { // again takes its own entries' place
		if err := MergeKubeconfig(file, access); err != nil {
			t.Fatal(err)
		}
	}
	after, err := clientcmd.LoadFromFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if after.CurrentContext != "demo" {
		t.Errorf("current context %q", after.CurrentContext)
	}
	if diff := cmp.Diff(before.Clusters["work"], after.Clusters["work"]); diff != "" {
		t.Error(diff)
	}
	if diff := cmp.Diff(before.Contexts["work"], after.Contexts["work"]); diff != "" {
		t.Error(diff)
	}
	if after.AuthInfos["work"].Token != "not-ours" || after.AuthInfos["work"].Exec.Command != "login" {
		t.Error("the other user changed")
	}
	rc, err := clientcmd.NewDefaultClientConfig(*after, nil).ClientConfig()
	if err != nil || rc.Host != access.Server || rc.ServerName != APIServerName || string(rc.KeyData) != string(access.KeyPEM) {
		t.Errorf("client-go reads something else (%v)", err)
	}
	info, err := os.Stat(file)
	if err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("mode %v (%v)", info.Mode(), err)
	}
	entries, err := os.ReadDir(filepath.Dir(file))
	if err != nil || len(entries) != 1 {
		t.Errorf("left %v behind (%v)", entries, err)
	}
}

func TestMergeKubeconfigRefusesForeignEntries(t *testing.T) {
	for _, kind := range []string{"cluster", "user", "context"} {
		file := filepath.Join(t.TempDir(), "config")
		text := strings.ReplaceAll(others, "work", "other")
		text = strings.Replace(text, "{name: other, "+kind, "{name: demo, "+kind, 1)
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		err := MergeKubeconfig(file, someAccess(t))
		if err == nil || !strings.Contains(err.Error(), "has a "+kind+" demo that slipway did not create") || len(diag.Hints(err)) == 0 {
			t.Errorf("%s: got %v", kind, err)
		}
		if now, _ := os.ReadFile(file); string(now) != text {
			t.Errorf("%s: the file changed", kind)
		}
	}
}

// TestRemoveKubeconfigEntry: what slipway wrote for a cluster goes; entries of others, and of another cluster of the same
// name, stay.
func TestRemoveKubeconfigEntry(t *testing.T) {
	file := filepath.Join(t.TempDir(), "config")
	if removed, err := RemoveKubeconfigEntry(file, "demo", []byte("ca")); removed || err != nil {
		t.Errorf("without a file: %v, %v", removed, err)
	}
	if err := os.WriteFile(file, []byte(others), 0o600); err != nil {
		t.Fatal(err)
	}
	own := someAccess(t)
	if err := MergeKubeconfig(file, own); err != nil {
		t.Fatal(err)
	}
	for name, authority := range map[string][]byte{"work": []byte("foo"), "demo": []byte("another"), "none": own.CAPEM} {
		if removed, err := RemoveKubeconfigEntry(file, name, authority); removed || err != nil {
			t.Errorf("%s: %v, %v", name, removed, err)
		}
	}
	removed, err := RemoveKubeconfigEntry(file, "demo", own.CAPEM)
	config, loadErr := clientcmd.LoadFromFile(file)
	if err != nil || loadErr != nil || !removed {
		t.Fatal(removed, err, loadErr)
	}
	if len(config.Clusters) != 1 || len(config.AuthInfos) != 1 || len(config.Contexts) != 1 || config.Contexts["work"] == nil || config.CurrentContext != "" {
		t.Errorf("left %+v", config)
	}
}

func TestMergeKubeconfigKeepsALink(t *testing.T) {
	dir := t.TempDir()
	real, link := filepath.Join(dir, "real"), filepath.Join(dir, "link")
	if err := os.WriteFile(real, []byte(others), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(real, link); err != nil {
		t.Fatal(err)
	}
	if err := MergeKubeconfig(link, someAccess(t)); err != nil {
		t.Fatal(err)
	}
	if target, err := os.Readlink(link); err != nil || target != real {
		t.Errorf("the link is gone: %q %v", target, err)
	}
	if c, err := clientcmd.LoadFromFile(real); err != nil || c.CurrentContext != "demo" {
		t.Errorf("the file behind the link is as it was (%v)", err)
	}
}

// balancers is a fake of elbv2 with some load balancers, 25 a page.
type balancers struct {
	all  []elbtypes.LoadBalancer
	tags map[string]string // by ARN: the cluster
}

func (b *balancers) add(n int, cluster string, scheme elbtypes.LoadBalancerSchemeEnum) {
	arn := fmt.Sprintf("arn:%d", n)
	b.all = append(b.all, elbtypes.LoadBalancer{LoadBalancerArn: &arn, DNSName: aws.String(fmt.Sprintf("lb%d.example", n)), Scheme: scheme})
	b.tags[arn] = cluster
}

func (b *balancers) DescribeLoadBalancers(_ context.Context, in *elb.DescribeLoadBalancersInput, _ ...func(*elb.Options)) (*elb.DescribeLoadBalancersOutput, error) {
	start := 0
	if in.Marker != nil {
		if _, err := fmt.Sscan(*in.Marker, &start); err != nil {
			return nil, err
		}
	}
	out := &elb.DescribeLoadBalancersOutput{LoadBalancers: b.all[start:min(start+25, len(b.all))]}
	if start+25 < len(b.all) {
		out.NextMarker = aws.String(strconv.Itoa(start + 25))
	}
	return out, nil
}

func (b *balancers) DescribeTags(_ context.Context, in *elb.DescribeTagsInput, _ ...func(*elb.Options)) (*elb.DescribeTagsOutput, error) {
	if len(in.ResourceArns) > 20 {
		return nil, errors.New("AWS takes 20 at once")
	}
	out := &elb.DescribeTagsOutput{}
	for _, arn := range in.ResourceArns {
		out.TagDescriptions = append(out.TagDescriptions, elbtypes.TagDescription{
			ResourceArn: &arn, Tags: []elbtypes.Tag{{Key: aws.String(awskind.TagCluster), Value: aws.String(b.tags[arn])}},
		})
	}
	return out, nil
}

func TestFindAPI(t *testing.T) {
	b := &balancers{tags: map[string]string{}}
	for n := range 40 {
		b.add(n, "other", elbtypes.LoadBalancerSchemeEnumInternetFacing)
	}
	if _, err := findLoadBalancerURL(t.Context(), b, identity{name: "demo"}); err == nil || !strings.Contains(diag.Hints(err)[0], "slipway apply demo") {
		t.Errorf("got %v", err)
	}
	b.add(40, "demo", elbtypes.LoadBalancerSchemeEnumInternal)
	if got, err := findLoadBalancerURL(t.Context(), b, identity{name: "demo"}); err != nil || got != "https://lb40.example:443" {
		t.Errorf("got %q, %v", got, err)
	}
	b.add(41, "demo", elbtypes.LoadBalancerSchemeEnumInternetFacing)
	if got, err := findLoadBalancerURL(t.Context(), b, identity{name: "demo"}); err != nil || got != "https://lb41.example:443" {
		t.Errorf("got %q, %v", got, err)
	}
}

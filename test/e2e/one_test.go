// SPDX-License-Identifier: Apache-2.0

package e2e_test

import (
	"compress/gzip"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/ec2"
	ec2types "github.com/aws/aws-sdk-go-v2/service/ec2/types"
	"github.com/aws/aws-sdk-go-v2/service/s3"

	"github.com/slipway-k8s/slipway/internal/lib/store"
)

// TestOneMachine creates examples/one-machine.yaml in an existing VPC whose DHCP options have a domain name, reads its
// logs, logs in, collects a support bundle and terminates its machine. The replacement must get the same address and the
// same data. It tests requirements S3.16, S3.17, S3.25 and S3.26.
func TestOneMachine(t *testing.T) {
	e := newEnvironment(t)
	body, err := os.ReadFile("../../examples/one-machine.yaml")
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "cluster.yaml")
	pair := e.createSSHKey()
	text := strings.ReplaceAll(string(body), "one-machine", clusterName)
	if pair.public != "" {
		text = strings.Replace(text, "\nspec:\n", "\nspec:\n  sshKey: "+pair.public+"\n", 1)
	}
	text = e.withUser(text, "alice")
	vpc, gateway := e.createDomainVPC("10.80.0.0/16")
	text = strings.Replace(text, "  networking:\n", "  networking:\n    networkID: "+vpc+"\n    internetGatewayID: "+gateway+"\n    networkCIDR: 10.80.0.0/16\n", 1)
	text = strings.Replace(text, "zone: us-east-1a}", "zone: us-east-1a, cidr: 10.80.0.0/24}", 1)
	text = strings.Replace(text, "\nspec:\n", "\nspec:\n  kubeAPIServer:\n    auditLogUpload: true\n", 1)
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	e.createFrom(file, 5*time.Minute)
	names, err := e.readyNodes()
	if err != nil || len(names) != 1 {
		t.Fatalf("%d Ready nodes, want 1: %v %v", len(names), names, err)
	}
	e.checkPodRuns()
	address, first := e.findAPIAddress()
	e.checkDomainName(first)
	e.checkLogs(first)
	e.checkShell(first, pair)
	e.checkSupportBundle(first)
	e.checkUsers()
	e.kubectl("create", "configmap", "last-change", "--from-literal=key=value")
	// The agent uploads the rest of the audit log when it is stopped. The local region terminates machines without that.
	e.mustRunInMachine(first, "systemctl restart slipway-node")
	if _, err := ec2.NewFromConfig(e.aws).TerminateInstances(t.Context(), &ec2.TerminateInstancesInput{InstanceIds: []string{first}}); err != nil {
		t.Fatal(err)
	}
	start := time.Now()
	e.waitUntil("another machine has the address", 3*time.Minute, func() error {
		if now, machine := e.findAPIAddress(); now != address || machine == first || machine == "" {
			return fmt.Errorf("the address %s is at %q", now, machine)
		}
		return nil
	})
	t.Logf("the address was at the next machine after %s", time.Since(start).Round(time.Second))
	e.waitUntil("its API answers with the data of before", 3*time.Minute, func() error {
		if r := e.tryKubectl("get", "configmap", "before", "-o", "jsonpath={.data.key}"); r.out != "before" {
			return fmt.Errorf("%q %s", r.out, r.err)
		}
		return nil
	})
	t.Logf("its API answered with the data of before after %s", time.Since(start).Round(time.Second))
	e.checkAuditLog(first, "last-change")
	e.runSlipway("delete", "cluster", clusterName, "--yes")
	e.checkAuditLog(first, "last-change")
}

// checkAuditLog checks that the uploaded audit log of a machine, which was terminated since, has the creation of a ConfigMap
// once: the machine's last change.
func (e *environment) checkAuditLog(machine, configMap string) {
	e.t.Helper()
	api := s3.NewFromConfig(e.aws, func(o *s3.Options) { o.UsePathStyle = true })
	prefix := store.AuditLogPrefix(clusterName) + machine + "/"
	parts, err := api.ListObjectsV2(e.t.Context(), &s3.ListObjectsV2Input{Bucket: aws.String(bucket), Prefix: &prefix})
	if err != nil {
		e.t.Fatal(err)
	}
	lines, found := 0, 0
	for _, part := range parts.Contents {
		for line := range strings.Lines(e.readCompressed(api, *part.Key)) {
			var event struct {
				Verb      string
				ObjectRef struct{ Resource, Name string }
			}
			if err := json.Unmarshal([]byte(line), &event); err != nil {
				e.t.Fatalf("%s has the line %q: %v", *part.Key, line, err)
			}
			lines++
			if event.Verb == "create" && event.ObjectRef.Resource == "configmaps" && event.ObjectRef.Name == configMap {
				found++
			}
		}
	}
	e.t.Logf("the audit log of %s has %d lines in %d objects", machine, lines, len(parts.Contents))
	if found != 1 {
		e.t.Errorf("the creation of ConfigMap %s is there %d times, want once", configMap, found)
	}
}

// readCompressed returns the text of an object that is compressed with gzip.
func (e *environment) readCompressed(api *s3.Client, key string) string {
	e.t.Helper()
	out, err := api.GetObject(e.t.Context(), &s3.GetObjectInput{Bucket: aws.String(bucket), Key: &key})
	if err != nil {
		e.t.Fatal(err)
	}
	defer func() { _ = out.Body.Close() }()
	plain, err := gzip.NewReader(out.Body)
	if err != nil {
		e.t.Fatalf("%s: %v", key, err)
	}
	text, err := io.ReadAll(plain)
	if err != nil {
		e.t.Fatalf("%s: %v", key, err)
	}
	return string(text)
}

// findAPIAddress returns the API's address and the ID of the machine that has it.
func (e *environment) findAPIAddress() (address, machine string) {
	e.t.Helper()
	out, err := ec2.NewFromConfig(e.aws).DescribeAddresses(e.t.Context(), &ec2.DescribeAddressesInput{Filters: []ec2types.Filter{
		{Name: aws.String("tag:slipway.dev/cluster"), Values: []string{clusterName}},
	}})
	if err != nil || len(out.Addresses) != 1 {
		e.t.Fatalf("%d addresses, want 1: %v", len(out.Addresses), err)
	}
	return aws.ToString(out.Addresses[0].PublicIp), aws.ToString(out.Addresses[0].InstanceId)
}

// checkPodRuns writes data, and runs an ordinary pod on the machine, which has no taint.
func (e *environment) checkPodRuns() {
	e.t.Helper()
	const name = "before"
	e.kubectl("create", "configmap", name, "--from-literal=key="+name)
	e.kubectl("run", name, "--image="+probeImage, "--", "serve", ":8080")
	e.waitUntil("the pod "+name+" runs", 2*time.Minute, func() error {
		if r := e.tryKubectl("get", "pod", name, "-o", "jsonpath={.status.phase}"); r.out != "Running" {
			return fmt.Errorf("it is %q %s", r.out, r.err)
		}
		return nil
	})
}

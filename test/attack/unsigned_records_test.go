// SPDX-License-Identifier: Apache-2.0

package attack_test

import (
	"bytes"
	"encoding/json"
	"io"
	"strings"
	"testing"
	"time"
	"unicode"

	sdk "github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/cloudformation"
	cfntypes "github.com/aws/aws-sdk-go-v2/service/cloudformation/types"
	"github.com/aws/aws-sdk-go-v2/service/ec2"
	"github.com/aws/aws-sdk-go-v2/service/ec2/types"
	"github.com/aws/aws-sdk-go-v2/service/s3"

	"github.com/slipway-k8s/slipway/internal/cluster/operation"
)

// writeState writes an object of the state store as who may write to the bucket and has no right to any key.
func (l *lab) writeState(key string, body []byte) {
	l.Helper()
	_, err := l.s3(caller{}).PutObject(l.Context(), &s3.PutObjectInput{
		Bucket: sdk.String(bucket), Key: sdk.String("team/" + key), Body: bytes.NewReader(body),
	})
	l.check(err)
}

// readState returns an object of the state store.
func (l *lab) readState(key string) []byte {
	l.Helper()
	out, err := l.s3(caller{}).GetObject(l.Context(), &s3.GetObjectInput{Bucket: sdk.String(bucket), Key: sdk.String("team/" + key)})
	l.check(err)
	body, err := io.ReadAll(out.Body)
	l.check(err)

	return body
}

// deleteState deletes an object of the state store.
func (l *lab) deleteState(key string) {
	l.Helper()
	_, err := l.s3(caller{}).DeleteObject(l.Context(), &s3.DeleteObjectInput{Bucket: sdk.String(bucket), Key: sdk.String("team/" + key)})
	l.check(err)
}

// TestForgedLockOnlyBlocks: who writes the lock, which nobody signs, ends the operation that holds it, and blocks others until an operator
// takes the lock away. Those that read are not blocked. No attack: it shows what the accepted risk is.
func TestForgedLockOnlyBlocks(t *testing.T) {
	l := newLab(t)
	l.createCluster()
	now := time.Now().UTC()
	forged := operation.Lock{
		Version: 1,
		Token:   1000,
		Holder: &operation.Holder{
			ID:           "id",
			Owner:        "ada@elsewhere",
			Operation:    "apply",
			Since:        now,
			Expires:      now.Add(100 * 365 * 24 * time.Hour),
			LeaseSeconds: 60,
		},
	}
	body, err := json.Marshal(forged)
	l.check(err)

	l.writeState(operation.LockKey("demo"), body)
	if _, errs, code := l.slipway(caller{}, "apply", "demo", "--yes"); code != 1 || !strings.Contains(errs, "slipway unlock demo") {
		t.Errorf("exit %d\n%s", code, errs)
	}

	l.must(caller{}, 0, "plan", "demo")
	l.must(caller{}, 0, "drift", "demo")
	l.must(caller{}, 0, "unlock", "demo", "--yes")
	l.must(caller{}, 0, "apply", "demo", "--yes")

	l.writeState(operation.LockKey("demo"), []byte("no lock"))
	if _, errs, code := l.slipway(caller{}, "apply", "demo", "--yes"); code != 1 || !strings.Contains(errs, "delete this object") {
		t.Errorf("of what is no lock: exit %d\n%s", code, errs)
	}

	l.deleteState(operation.LockKey("demo"))
	l.must(caller{}, 0, "apply", "demo", "--yes")

	// Numbers continue from the journal if there is no lock.
	const last = 999_999_999_998
	l.writeState(operation.JournalKey("demo", last), []byte("{}"))
	l.deleteState(operation.LockKey("demo"))
	_, _, _ = l.slipway(caller{}, "apply", "demo", "--yes")
	if _, errs, code := l.slipway(caller{}, "apply", "demo", "--yes"); code != 1 || !strings.Contains(errs, "delete this object") {
		t.Errorf("after the highest number: exit %d\n%s", code, errs)
	}

	l.deleteState(operation.LockKey("demo"))
	for _, key := range l.objectsBelow("team/" + operation.JournalKey("demo", last)[:len("_operations/demo/journal/9999")]) {
		l.deleteState(strings.TrimPrefix(key, "team/"))
	}

	l.must(caller{}, 0, "apply", "demo", "--yes")
}

// TestRecordsChangeNoTerminal: who writes the journal, the lock or what was applied last, which nobody signs, writes commands for the
// terminals of operators into them. Seen to succeed with history, unlock, drift, and the error of an apply.
func TestRecordsChangeNoTerminal(t *testing.T) {
	l := newLab(t)
	l.createCluster()
	const attack = "\x1b[2J\x1b[1;1H\x1b]0;title\x07\u009b31m\u202ehealthy"
	replace := func(key, old string) {
		t.Helper()
		body := l.readState(key)
		text, err := json.Marshal(attack)
		l.check(err)
		changed := bytes.Replace(body, []byte(old), append([]byte(old), bytes.Trim(text, `"`)...), 1)
		if bytes.Equal(changed, body) {
			t.Fatalf("%s has no %s", key, old)
		}

		l.writeState(key, changed)
	}

	check := func(code int, args ...string) {
		t.Helper()
		out, errs, got := l.slipway(caller{}, args...)
		if got != code || !strings.Contains(out+errs, "healthy") {
			t.Errorf("slipway %s: exit %d, want %d with the forged text\n%s%s", strings.Join(args, " "), got, code, out, errs)
		}

		for _, r := range out + errs {
			if r != '\n' && r != '\t' && unicode.IsControl(r) || unicode.Is(unicode.Bidi_Control, r) {
				t.Errorf("slipway %s: %q reaches the terminal: %q", strings.Join(args, " "), r, out+errs)
				return
			}
		}
	}

	replace(operation.JournalKey("demo", 2), `"owner": "`)
	check(0, "history", "demo")

	replace("demo/applied.json", `"by":"`)
	check(0, "drift", "demo")

	now, err := json.Marshal(time.Now().UTC())
	l.check(err)
	text, err := json.Marshal(attack)
	l.check(err)
	l.writeState(operation.LockKey("demo"), []byte(`{"version":1,"token":9,"holder":{"id":"i","owner":`+string(text)+`,"operation":"apply",
		"command":`+string(text)+`,"since":`+string(now)+`,"expires":"2126-01-02T00:00:00Z","leaseSeconds":60}}`))
	check(1, "apply", "demo", "--yes")
	check(0, "unlock", "demo", "--yes")
}

// TestForgedAppliedHidesDriftOnly: who writes what was applied last, which nobody signs, hides a change of AWS from 'slipway drift'. The
// plan compares AWS with the signed manifests, and shows it. No attack: it shows what the accepted risk is.
func TestForgedAppliedHidesDriftOnly(t *testing.T) {
	l := newLab(t)
	l.createCluster()
	api := ec2.NewFromConfig(l.config(caller{}))
	groups, err := api.DescribeSecurityGroups(t.Context(), &ec2.DescribeSecurityGroupsInput{Filters: []types.Filter{
		{Name: sdk.String("tag:slipway.dev/cluster"), Values: []string{"demo"}},
	}})
	l.check(err)
	if len(groups.SecurityGroups) == 0 {
		t.Fatal("the cluster has no security group")
	}

	vpc := groups.SecurityGroups[0].VpcId
	_, err = api.ModifyVpcAttribute(t.Context(), &ec2.ModifyVpcAttributeInput{
		VpcId: vpc, EnableDnsHostnames: &types.AttributeBooleanValue{Value: sdk.Bool(false)},
	})
	l.check(err)
	l.must(caller{}, 2, "drift", "demo")

	var record map[string]any
	l.check(json.Unmarshal(l.readState("demo/applied.json"), &record))
	resources, _ := record["resources"].([]any)
	for _, r := range resources {
		resource, _ := r.(map[string]any)
		properties, _ := resource["properties"].(map[string]any)
		if resource["kind"] == "vpc" || properties["EnableDnsHostnames"] != nil {
			properties["EnableDnsHostnames"] = false
		}
	}

	body, err := json.Marshal(record)
	l.check(err)
	l.writeState("demo/applied.json", body)
	l.must(caller{}, 0, "drift", "demo")

	out := l.must(caller{}, 2, "plan", "demo")
	if !strings.Contains(out, "EnableDnsHostnames") {
		t.Errorf("the plan does not show the change:\n%s", out)
	}

	l.must(caller{}, 0, "apply", "demo", "--yes")
	l.must(caller{}, 0, "drift", "demo")
}

// TestForgedProvisionerChangesNothing: who writes that CloudFormation created the cluster, which nobody signs, has an apply begin to create
// everything once more by a stack, which its plan shows. That fails at the first name that exists, and is rolled back; no resource of the
// cluster changes. No attack: it shows what the accepted risk is.
func TestForgedProvisionerChangesNothing(t *testing.T) {
	l := newLab(t)
	l.createCluster()
	genuine := l.readState("demo/provisioner.json")
	l.writeState("demo/provisioner.json", []byte(`{"via":"cloudformation"}`))
	out, errs, code := l.slipway(caller{}, "apply", "demo", "--yes")
	if code != 1 || !strings.Contains(out, "0 to change, 0 to destroy") || !strings.Contains(errs, "already exists") {
		t.Errorf("exit %d\n%s%s", code, out, errs)
	}

	l.writeState("demo/provisioner.json", genuine)
	// Until CloudFormation has deleted what it has created, a plan sees two VPCs of the cluster.
	l.waitForStack(cloudformation.NewFromConfig(l.config(caller{})), cfntypes.StackStatusRollbackComplete)
	l.must(caller{}, 0, "plan", "demo")
	l.must(caller{}, 0, "apply", "demo", "--yes")
}

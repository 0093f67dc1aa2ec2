// SPDX-License-Identifier: Apache-2.0

package attack_test

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/json"
	"encoding/pem"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	sdk "github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/cloudformation"
	cfntypes "github.com/aws/aws-sdk-go-v2/service/cloudformation/types"
	"github.com/aws/aws-sdk-go-v2/service/iam"
	"github.com/aws/aws-sdk-go-v2/service/sts"

	"github.com/slipway-k8s/slipway/internal/lib/pki"
	"github.com/slipway-k8s/slipway/internal/machine/join"
	"github.com/slipway-k8s/slipway/internal/region/regiontest"
)

// The instance that an attacker says to be, and the role of workers.
const (
	victim     = "i-0123456789abcdef0"
	workerRole = "demo.worker.us-east-1"
)

// joinLab is a join endpoint that asks the STS of the lab whose a proof is.
type joinLab struct {
	*lab
	server  *join.Server
	machine join.Machine
	passed  []join.Signal
	actions []string
}

func newJoinLab(t *testing.T) *joinLab {
	t.Helper()
	j := &joinLab{lab: newLabWithoutStore(t)}
	j.machine = join.Machine{
		ID:           victim,
		Account:      regiontest.AccountID,
		Name:         "ip-10-80-16-4.ec2.internal",
		Address:      "10.80.16.4",
		State:        "running",
		Role:         "worker",
		Group:        "workers",
		ScalingGroup: "workers.demo",
	}

	key, err := pki.NewKey(pki.KubernetesCA)
	j.check(err)
	ca, err := pki.NewCA(pki.KubernetesCA, "demo", key, time.Now())
	j.check(err)
	j.server = &join.Server{
		CA:          ca,
		Cluster:     "demo",
		WorkerRoles: map[string]string{"workers": workerRole},
		STSEndpoint: j.region.URL,
		HTTP:        http.DefaultClient,
		TTL:         time.Hour,
		Now:         time.Now,
		Log:         slog.New(slog.DiscardHandler),
		FindMachine: func(_ context.Context, id string) (join.Machine, bool, error) { return j.machine, id == victim, nil },
		PassSignal: func(_ context.Context, _ join.Machine, s join.Signal) error {
			j.passed = append(j.passed, s)

			return nil
		},
		ActForMachine: func(_ context.Context, m join.Machine, a join.LifecycleAction) (bool, error) {
			j.actions = append(j.actions, m.ID+" of "+m.ScalingGroup+": "+string(a.Kind)+" "+a.Hook)

			return true, nil
		},
	}

	return j
}

// assume returns a session, with the name of the victim, of a new role that everybody in the account may assume.
func (j *joinLab) assume(role string) caller {
	j.Helper()
	trust := `{"Version":"2012-10-17","Statement":[{"Effect":"Allow","Action":"sts:AssumeRole",` +
		`"Principal":{"AWS":"arn:aws:iam::` + regiontest.AccountID + `:root"}}]}`
	made, err := iam.NewFromConfig(j.config(caller{})).CreateRole(j.Context(), &iam.CreateRoleInput{
		RoleName:                 &role,
		AssumeRolePolicyDocument: &trust,
	})
	j.check(err)

	permission, err := json.Marshal(map[string]any{"Version": "2012-10-17", "Statement": []map[string]any{{
		"Effect": "Allow", "Action": "sts:AssumeRole", "Resource": "*",
	}}})
	j.check(err)
	user := j.user("of-"+role, nil)
	_, err = iam.NewFromConfig(j.config(caller{})).PutUserPolicy(j.Context(), &iam.PutUserPolicyInput{
		UserName: sdk.String("of-" + role), PolicyName: sdk.String("assume"), PolicyDocument: sdk.String(string(permission)),
	})
	j.check(err)

	got, err := sts.NewFromConfig(j.config(user)).AssumeRole(j.Context(), &sts.AssumeRoleInput{
		RoleArn: made.Role.Arn, RoleSessionName: sdk.String(victim),
	})
	j.check(err)

	return caller{*got.Credentials.AccessKeyId, *got.Credentials.SecretAccessKey, *got.Credentials.SessionToken}
}

// prove returns the proof of c for a text, as a worker sends it.
func (j *joinLab) prove(c caller, text string) string {
	j.Helper()
	cfg := j.config(c)
	signer := join.Signer{
		Credentials: cfg.Credentials,
		Region:      cfg.Region,
		Endpoint:    j.region.URL,
		Now:         time.Now,
	}
	proof, err := signer.CreateProof(j.Context(), []byte(text))
	j.check(err)

	return proof
}

// newRequest returns a certificate signing request for a node; for the caller's own without a name.
func (j *joinLab) newRequest(node string) string {
	j.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	j.check(err)
	template := &x509.CertificateRequest{}
	if node != "" {
		template.Subject = pkix.Name{CommonName: join.NodeUser(node)}
	}

	der, err := x509.CreateCertificateRequest(rand.Reader, template, key)
	j.check(err)

	return string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE REQUEST", Bytes: der}))
}

// post sends a request to the endpoint from an address.
func (j *joinLab) post(path, address string, body map[string]string) (int, string) {
	j.Helper()
	text, err := json.Marshal(body)
	j.check(err)
	r := httptest.NewRequestWithContext(j.Context(), http.MethodPost, path, strings.NewReader(string(text)))
	r.RemoteAddr = address + ":1234"
	w := httptest.NewRecorder()
	j.server.ServeHTTP(w, r)

	return w.Code, w.Body.String()
}

// requestCertificate asks for the certificate of a node with a proof of c.
func (j *joinLab) requestCertificate(c caller, node string) (int, string) {
	j.Helper()
	csr := j.newRequest(node)

	return j.post("/v1/node-certificate", "10.80.16.4", map[string]string{"csr": csr, "proof": j.prove(c, csr)})
}

// TestStrangersGetNoCertificate: with a role of their own, whose session they name as an instance, with the tags of a worker on
// an instance of their own, and with a certificate of another node. Seen to succeed while tags were believed.
func TestStrangersGetNoCertificate(t *testing.T) {
	j := newJoinLab(t)
	worker := j.assume(workerRole)
	stranger := j.assume("stranger")
	guest := j.assume("demo.worker.us-east-1.guest")
	if code, text := j.requestCertificate(worker, ""); code != http.StatusOK {
		t.Fatalf("a worker: %d %s", code, text)
	}

	for name, attack := range map[string]struct {
		caller
		node string
		tags join.Machine // of the instance, if it is not the worker
		want string
	}{
		"a role of their own":           {caller: stranger, want: "worker role"},
		"a role with a similar name":    {caller: guest, want: "worker role"},
		"the node of another machine":   {caller: worker, node: "ip-10-80-16-5.ec2.internal", want: "may not request"},
		"a machine with tags alone":     {caller: worker, tags: join.Machine{State: "running"}, want: "Auto Scaling group"},
		"a machine of another group":    {caller: worker, tags: join.Machine{State: "running", ScalingGroup: "workers.demo-2"}, want: "Auto Scaling group"},
		"a machine that was terminated": {caller: worker, tags: join.Machine{State: "terminated", ScalingGroup: "workers.demo"}, want: "is terminated"},
	} {
		own := j.machine
		if attack.tags.State != "" {
			j.machine.State = attack.tags.State
			j.machine.ScalingGroup = attack.tags.ScalingGroup
		}

		code, text := j.requestCertificate(attack.caller, attack.node)
		j.machine = own
		if code != http.StatusForbidden || !strings.Contains(text, attack.want) {
			t.Errorf("%s: %d %s, want 403 and %q", name, code, text, attack.want)
		}
	}
}

// TestFloodsBlockNoRenewal: a pod sends many requests to the join endpoint, with and without a form. The worker behind another
// address renews its certificate. Seen to fail while all requests shared one limit.
func TestFloodsBlockNoRenewal(t *testing.T) {
	j := newJoinLab(t)
	worker := j.assume(workerRole)
	stranger := j.assume("stranger")
	csr := j.newRequest("")
	proof := j.prove(stranger, csr)
	limited := 0
	for range 100 {
		j.post("/v1/node-certificate", "10.80.16.9", map[string]string{"csr": "x"})
		if code, _ := j.post("/v1/node-certificate", "10.80.16.9", map[string]string{"csr": csr, "proof": proof}); code == http.StatusTooManyRequests {
			limited++
		}
	}

	if limited == 0 {
		t.Error("the flood had no limit")
	}

	if code, text := j.requestCertificate(worker, ""); code != http.StatusOK {
		t.Errorf("the worker cannot renew its certificate: %d %s", code, text)
	}
}

// TestWorkersCannotSignal: root on a worker ends an update of the stack for others: by CloudFormation with the machine's role,
// and by the control plane with a proof of something else, or for a machine that is terminated. Seen to succeed while the
// role of workers had the right.
func TestWorkersCannotSignal(t *testing.T) {
	l := newLab(t)
	l.createCluster()
	_, err := cloudformation.NewFromConfig(l.config(l.assumed(workerRole))).SignalResource(t.Context(), &cloudformation.SignalResourceInput{
		StackName:         sdk.String("demo"),
		LogicalResourceId: sdk.String("Workers"),
		UniqueId:          sdk.String(victim),
		Status:            cfntypes.ResourceSignalStatusSuccess,
	})
	l.denied("signal with the role of a worker", err)

	j := newJoinLab(t)
	worker := j.assume(workerRole)
	signal := func(proof string) (int, string) {
		return j.post("/v1/signal", "10.80.16.4", map[string]string{"status": string(join.SignalSuccess), "proof": proof})
	}
	own := j.prove(worker, "slipway-signal SUCCESS")
	if code, text := signal(own); code != http.StatusNoContent || len(j.passed) != 1 {
		t.Fatalf("a worker: %d %s", code, text)
	}

	for what, text := range map[string]string{"a certificate": j.newRequest(""), "a failure": "slipway-signal FAILURE"} {
		if code, answer := signal(j.prove(worker, text)); code != http.StatusForbidden {
			t.Errorf("the proof of %s: %d %s", what, code, answer)
		}
	}

	j.machine.State = "terminated"
	if code, answer := signal(own); code != http.StatusForbidden {
		t.Errorf("for a machine that was terminated: %d %s", code, answer)
	}

	if len(j.passed) != 1 {
		t.Errorf("%d signals were passed on", len(j.passed))
	}
}

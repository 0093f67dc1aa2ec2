// SPDX-License-Identifier: Apache-2.0

package e2e_test

import (
	"context"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	elb "github.com/aws/aws-sdk-go-v2/service/elasticloadbalancingv2"
	"github.com/aws/aws-sdk-go-v2/service/iam"
)

const (
	cloudController  = "aws-cloud-controller-manager"
	addonsFolder     = "../../examples/addons/"
	discoveryStore   = "s3://slipway-e2e-oidc/prod"
	machinesBoundary = "policy/slipway/slipway-machines-" + bucket
)

// TestLoadBalancerServices installs the real cloud controller manager and external-dns with the channels of examples/addons. A
// Service of type LoadBalancer gets a load balancer that answers and a DNS record, which are removed with the Service, or the
// load balancer with the cluster. Each controller has only the IAM role of its own service account.
func TestLoadBalancerServices(t *testing.T) {
	skipUnlessLong(t)
	e := newEnvironment(t)
	e.runSteps(t, []step{
		{"up", createClusterWithPodIdentity},
		{"the channel is applied", applyLoadBalancers},
		{"the channel of DNS records is applied", applyDNSRecords},
		{"a Service gets an address and answers", checkLoadBalancer},
		{"the Service gets a DNS record", checkDNSRecord},
		{"the load balancer is removed with the Service", removeLoadBalancer},
		{"the DNS record is removed with the Service", checkNoDNSRecord},
		{"a Service with local traffic answers", checkLocalTraffic},
		{"delete leaves nothing", deleteWithLoadBalancer},
	})
}

// createClusterWithPodIdentity creates a cluster in which the cloud controller manager and external-dns have IAM roles.
func createClusterWithPodIdentity(e *environment) {
	e.createClusterWithRoles(map[string]map[string]string{
		cloudController: {"CLUSTER": clusterName},
		externalDNS:     {"ZONE": e.createServicesZone()},
	})
}

// createClusterWithRoles creates a cluster in which controllers have IAM roles. Each has values for the words of its policy.
func (e *environment) createClusterWithRoles(controllers map[string]map[string]string) {
	e.prepareClusterWithRoles(controllers)
	e.runSlipway("apply", clusterName, "--yes")
	e.waitHealthy(10 * time.Minute)
	e.exportKubeconfig()
}

// prepareClusterWithRoles writes the manifest of a cluster in which controllers have IAM roles.
func (e *environment) prepareClusterWithRoles(controllers map[string]map[string]string) {
	e.runSlipway("state", "init", "--yes")
	e.runSlipway("iam", "init-discovery", discoveryStore, "--yes")
	e.runSlipway("create", "cluster", clusterName, "--zones", region+"a,"+region+"b,"+region+"c", "--yes")
	e.editManifest("  networking:\n", "  serviceAccountIssuerDiscovery: {discoveryStore: "+discoveryStore+"}\n  networking:\n")
	for _, name := range slices.Sorted(maps.Keys(controllers)) {
		e.createAddonRole(name, controllers[name])
	}
}

// editManifest replaces a text of the manifest of the cluster.
func (e *environment) editManifest(old, now string) {
	e.t.Helper()
	text := e.runSlipway("get", "clusters", clusterName, "-o", "yaml")
	if !strings.Contains(text, old) {
		e.t.Fatalf("the manifest has no %q:\n%s", old, text)
	}
	file := filepath.Join(e.t.TempDir(), "cluster.yaml")
	writeFile(e.t, file, strings.Replace(text, old, now, 1))
	e.runSlipway("replace", "-f", file, "--yes")
}

// createAddonRole adds the role of a controller in kube-system to the manifest, and has the permissions boundary of the store allow
// it, as an administrator does. The policy is that of examples/addons, with values in the place of its words in capitals.
func (e *environment) createAddonRole(name string, values map[string]string) {
	e.t.Helper()
	body, err := os.ReadFile(addonsFolder + name + "-policy.json")
	if err != nil {
		e.t.Fatal(err)
	}
	text := string(body)
	for word, value := range values {
		text = strings.ReplaceAll(text, word, value)
	}
	policy := filepath.Join(e.t.TempDir(), "policy.json")
	writeFile(e.t, policy, text)
	e.runSlipway("iam", "service-account", "create", name, "-n", "kube-system", "--policy-file", policy, "--name", clusterName, "--yes")
	e.extendBoundary(text)
}

// extendBoundary adds the statements of a policy to the permissions boundary of the store, without their conditions.
func (e *environment) extendBoundary(policy string) {
	e.t.Helper()
	api := iam.NewFromConfig(e.aws)
	arn := strings.Replace(e.userARN(""), "user/", machinesBoundary, 1)
	attached, err := api.GetPolicy(e.t.Context(), &iam.GetPolicyInput{PolicyArn: &arn})
	if err != nil {
		e.t.Fatal(err)
	}
	have, err := api.GetPolicyVersion(e.t.Context(), &iam.GetPolicyVersionInput{PolicyArn: &arn, VersionId: attached.Policy.DefaultVersionId})
	if err != nil {
		e.t.Fatal(err)
	}
	document, err := url.PathUnescape(*have.PolicyVersion.Document)
	if err != nil {
		e.t.Fatal(err)
	}
	var boundary, more struct {
		Version   string
		Statement []map[string]any
	}
	for _, decode := range []error{json.Unmarshal([]byte(document), &boundary), json.Unmarshal([]byte(policy), &more)} {
		if decode != nil {
			e.t.Fatal(decode)
		}
	}
	for _, s := range more.Statement {
		delete(s, "Condition") // the role has the conditions
		delete(s, "Sid")
		boundary.Statement = append(boundary.Statement, s)
	}
	encoded, err := json.Marshal(boundary)
	if err != nil {
		e.t.Fatal(err)
	}
	e.setBoundary(arn, string(encoded))
}

// setBoundary makes a document the default version of the permissions boundary.
func (e *environment) setBoundary(arn, document string) {
	e.t.Helper()
	_, err := iam.NewFromConfig(e.aws).CreatePolicyVersion(e.t.Context(), &iam.CreatePolicyVersionInput{
		PolicyArn: &arn, PolicyDocument: &document, SetAsDefault: true,
	})
	if err != nil {
		e.t.Fatal(err)
	}
}

// applyLoadBalancers applies the channel with the region's address for machines.
func applyLoadBalancers(e *environment) {
	e.applyChannel("load-balancers.yaml", cloudController, nil)
}

// applyChannel applies a channel of examples/addons with the manifest of a controller, the region's address for machines,
// further texts that are replaced in the channel, and more manifests that it names.
func (e *environment) applyChannel(channel, controller string, values map[string]string, more ...string) {
	e.t.Helper()
	folder := e.t.TempDir()
	for _, name := range append([]string{channel, controller + ".yaml"}, more...) {
		body, err := os.ReadFile(addonsFolder + name)
		if err != nil {
			e.t.Fatal(err)
		}
		text := strings.Replace(string(body), `AWS_ENDPOINT_URL, value: ""`, `AWS_ENDPOINT_URL, value: "http://198.18.0.1"`, 1)
		for old, value := range values {
			text = strings.ReplaceAll(text, old, value)
		}
		writeFile(e.t, filepath.Join(folder, name), text)
	}
	start := time.Now()
	e.t.Log("\n" + e.runSlipway("addons", "apply", clusterName, "-f", filepath.Join(folder, channel), "--yes"))
	e.t.Logf("COUNT %s is healthy after %s", controller, time.Since(start).Round(time.Second))
}

// webService is a Deployment of two pods that answer with their names, and a Service of type LoadBalancer.
const webService = `
apiVersion: apps/v1
kind: Deployment
metadata: {name: web, namespace: default}
spec:
  replicas: 2
  selector: {matchLabels: {app: web}}
  template:
    metadata: {labels: {app: web}}
    spec:
      automountServiceAccountToken: false
      topologySpreadConstraints:
      - {maxSkew: 1, topologyKey: kubernetes.io/hostname, whenUnsatisfiable: DoNotSchedule, labelSelector: {matchLabels: {app: web}}}
      containers:
      - name: web
        image: %s
        ports: [{containerPort: 8080}]
        securityContext: {allowPrivilegeEscalation: false, runAsNonRoot: true, runAsUser: 65534, capabilities: {drop: [ALL]}, seccompProfile: {type: RuntimeDefault}}
---
apiVersion: v1
kind: Service
metadata:
  name: web
  namespace: default
  annotations: {service.beta.kubernetes.io/aws-load-balancer-type: nlb}
spec:
  type: LoadBalancer
  externalTrafficPolicy: %s
  selector: {app: web}
  ports: [{port: 80, targetPort: 8080}]
`

// applyWebService applies the Deployment and the Service, and returns the host name of the Service.
func (e *environment) applyWebService(policy string) string {
	e.t.Helper()
	file := filepath.Join(e.t.TempDir(), "web.yaml")
	writeFile(e.t, file, fmt.Sprintf(webService, probeImage, policy))
	start := time.Now()
	e.kubectl("apply", "-f", file)
	e.kubectl("wait", "deployment/web", "--for=condition=Available", "--timeout=180s", "--request-timeout=0")
	var host string
	e.waitUntil("the Service has a host name", 2*time.Minute, func() error {
		host = e.kubectl("get", "service", "web", "-o", "jsonpath={.status.loadBalancer.ingress[0].hostname}")
		if host == "" {
			return fmt.Errorf("it has none:\n%s", e.kubectl("get", "events", "--field-selector", "involvedObject.name=web"))
		}

		return nil
	})
	e.t.Logf("COUNT the Service has the host name %s after %s", host, time.Since(start).Round(time.Second))

	return host
}

// addressOfService returns the address of a host name such as 127.4194305, as the resolver of the C library reads it.
func (e *environment) addressOfService(host string) string {
	e.t.Helper()
	network, rest, ok := strings.Cut(host, ".")
	n, err := strconv.ParseUint(rest, 10, 24)
	if !ok || err != nil || network != "127" {
		e.t.Fatalf("the host name of the Service is %q, want 127.NUMBER", host)
	}
	var address [4]byte
	binary.BigEndian.PutUint32(address[:], uint32(n))
	address[0] = 127

	return net.IP(address[:]).String()
}

// getHostname returns the name of the pod that answers at a host name.
func (e *environment) getHostname(host string) (string, error) {
	ctx, cancel := context.WithTimeout(e.t.Context(), 5*time.Second)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+e.addressOfService(host)+"/hostname", nil)
	if err != nil {
		return "", err
	}
	client := http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	answer, err := client.Do(request)
	if err != nil {
		return "", err
	}
	defer answer.Body.Close()
	body, err := io.ReadAll(answer.Body)
	if err == nil && answer.StatusCode != http.StatusOK {
		err = fmt.Errorf("status %d: %s", answer.StatusCode, body)
	}

	return strings.TrimSpace(string(body)), err
}

// waitForBothPods waits until both pods have answered.
func (e *environment) waitForBothPods(host string) {
	e.t.Helper()
	start := time.Now()
	seen := map[string]bool{}
	e.waitUntil("both pods answer through the load balancer", 2*time.Minute, func() error {
		for range 20 {
			pod, err := e.getHostname(host)
			if err != nil {
				return err
			}
			seen[pod] = true
		}
		if len(seen) < 2 {
			return fmt.Errorf("only %v answered", seen)
		}

		return nil
	})
	e.t.Logf("COUNT both pods answer through the load balancer after %s", time.Since(start).Round(time.Second))
}

func checkLoadBalancer(e *environment) {
	host := e.applyWebService("Cluster")
	e.waitForBothPods(host)
	checkNoDrift(e)
}

func removeLoadBalancer(e *environment) {
	e.kubectl("delete", "service", "web", "--wait", "--timeout=120s", "--request-timeout=0")
	e.waitUntil("the load balancer of the Service is gone", time.Minute, e.checkNoServiceBalancer)
}

// checkNoServiceBalancer returns an error while a load balancer or a target group of a Service exists.
func (e *environment) checkNoServiceBalancer() error {
	api := elb.NewFromConfig(e.aws)
	balancers, err := api.DescribeLoadBalancers(e.t.Context(), &elb.DescribeLoadBalancersInput{})
	if err != nil {
		return err
	}
	for _, b := range balancers.LoadBalancers {
		if !strings.HasPrefix(*b.LoadBalancerName, clusterName+"-") {
			return fmt.Errorf("load balancer %s is left", *b.LoadBalancerName)
		}
	}
	groups, err := api.DescribeTargetGroups(e.t.Context(), &elb.DescribeTargetGroupsInput{})
	if err != nil {
		return err
	}
	for _, g := range groups.TargetGroups {
		if strings.HasPrefix(*g.TargetGroupName, "k8s-") {
			return fmt.Errorf("target group %s is left", *g.TargetGroupName)
		}
	}

	return nil
}

// checkLocalTraffic uses a Service whose nodes forward only to their own pods, so that the load balancer asks each node
// whether it has one.
func checkLocalTraffic(e *environment) {
	e.waitForBothPods(e.applyWebService("Local"))
}

// deleteWithLoadBalancer deletes the cluster while a Service has a load balancer.
func deleteWithLoadBalancer(e *environment) {
	out := e.runSlipway("delete", "cluster", clusterName, "--yes")
	if !strings.Contains(out, "leftover of service default/web") {
		e.t.Errorf("delete does not name the load balancer of the Service:\n%s", out)
	}
	if err := e.checkNoServiceBalancer(); err != nil {
		e.t.Error(err)
	}
}

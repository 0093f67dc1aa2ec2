// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	elb "github.com/aws/aws-sdk-go-v2/service/elasticloadbalancingv2"
	elbtypes "github.com/aws/aws-sdk-go-v2/service/elasticloadbalancingv2/types"
	"github.com/spf13/cobra"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/slipway-k8s/slipway/internal/infra/awskind"
	"github.com/slipway-k8s/slipway/internal/lib/pki"
	"github.com/slipway-k8s/slipway/internal/lib/store"
)

// Limits and defaults of an administrator's certificate.
const (
	adminTTL    = 8 * time.Hour
	adminMaxTTL = 7 * 24 * time.Hour
	// clientCertTTL is for slipway's own questions to the API; longer than the longest wait.
	clientCertTTL = 2 * time.Hour
)

// apiServerName is in the certificate of every API server, whatever load balancer is in front of it.
const apiServerName = "kubernetes"

type exportOptions struct {
	name, kubeconfig string
	admin            time.Duration
}

func newExportCommand(a *app) *cobra.Command {
	return newGroupCommand("export", "Get access to a cluster", groupCluster, newExportKubeconfigCommand(a))
}

func newExportKubeconfigCommand(a *app) *cobra.Command {
	var o exportOptions
	cmd := &cobra.Command{
		Use:   "kubeconfig [NAME]",
		Short: "Merge a short-lived admin certificate into your kubeconfig",
		Long: `Issue an administrator certificate from the certificate authority in the state store and merge it into the kubeconfig, as
a context with the cluster's name, which becomes the current context. Other entries are never changed: an entry with the
cluster's name that slipway did not write is an error. The file is written atomically, with mode 0600.` + exitStatusHelp(),
		Example: `  slipway export kubeconfig demo
  slipway export kubeconfig demo --admin 1h --kubeconfig ./demo.kubeconfig
  slipway export kubeconfig demo --kubeconfig - > demo.kubeconfig`,
		RunE: func(cmd *cobra.Command, args []string) error {
			name, err := a.clusterName(args, o.name)
			if err != nil {
				return err
			}

			return a.exportKubeconfig(cmd.Context(), name, o)
		},
	}

	addNameFlag(cmd, &o.name)
	cmd.Flags().DurationVar(&o.admin, "admin", adminTTL, "lifetime of the certificate, at most 168h")
	cmd.Flags().StringVar(
		&o.kubeconfig,
		"kubeconfig",
		"",
		"file, or - for stdout (default: the first of KUBECONFIG, else ~/.kube/config)",
	)

	return cmd
}

func (a *app) exportKubeconfig(ctx context.Context, name string, o exportOptions) error {
	if o.admin <= 0 || o.admin > adminMaxTTL {
		return withHint(
			fmt.Errorf("--admin %s is not a lifetime for an administrator's certificate", o.admin),
			"use 1h to 168h",
		)
	}

	s, sealer, err := a.openStore(ctx)
	if err != nil {
		return err
	}

	set, err := a.loadManifests(ctx, s, name)
	if err != nil {
		return err
	}

	cfg, err := a.awsConfig(ctx)
	if err != nil {
		return err
	}

	access, err := a.issueAdminAccess(ctx, cfg, adminRequest{s, sealer, name, o.admin})
	if err != nil {
		return err
	}

	access.Server = a.preferDNSName(ctx, set.Cluster.Spec, access.Server)
	if o.kubeconfig == "-" {
		text, err := pki.RenderKubeconfig(access)
		if err != nil {
			return err
		}

		_, err = a.Stdout.Write(text)

		return err
	}

	file, err := a.kubeconfigFile(o.kubeconfig)
	if err != nil {
		return err
	}

	if err := mergeKubeconfig(file, access); err != nil {
		return err
	}

	a.printMessage(
		"context %s is now the current one of %s; its certificate is good for %s",
		name,
		file,
		o.admin,
	)

	return nil
}

// kubeconfigFile is the file that kubectl would write to.
func (a *app) kubeconfigFile(flag string) (string, error) {
	if flag != "" {
		return flag, nil
	}

	for _, file := range filepath.SplitList(a.Getenv("KUBECONFIG")) {
		if file != "" {
			return file, nil
		}
	}

	if home := a.Getenv("HOME"); home != "" {
		return filepath.Join(home, ".kube", "config"), nil
	}

	return "", withHint(errors.New("no kubeconfig file is known"), "give --kubeconfig FILE, or set HOME")
}

// adminRequest asks for access to a cluster.
type adminRequest struct {
	store   store.Store
	sealer  store.Sealer
	cluster string
	ttl     time.Duration
}

// issueAdminAccess issues a certificate and finds the API.
func (a *app) issueAdminAccess(
	ctx context.Context,
	cfg aws.Config,
	r adminRequest,
) (pki.KubeconfigOptions, error) {
	server, err := findServerURL(ctx, cfg, r.cluster)
	if err != nil {
		return pki.KubeconfigOptions{}, err
	}

	ca, err := pki.OpenCA(ctx, r.store, r.sealer, r.cluster, pki.KubernetesCA)
	if err != nil {
		return pki.KubeconfigOptions{}, err
	}

	key, err := pki.NewKey("admin")
	if err != nil {
		return pki.KubeconfigOptions{}, err
	}

	user := "slipway-admin"
	if who := a.Getenv("USER"); who != "" && len(user)+len(who) < 64 {
		user += ":" + who // so that the audit log tells administrators apart
	}

	leaf := pki.Leaf{
		CN:     user,
		Orgs:   []string{pki.AdminGroup},
		Usages: []pki.Usage{pki.ClientUsage},
		TTL:    r.ttl,
	}

	cert, err := pki.IssueLeaf(ca, leaf, key.Public(), a.Now())
	if err != nil {
		return pki.KubeconfigOptions{}, err
	}

	keyPEM, err := key.PEM()
	if err != nil {
		return pki.KubeconfigOptions{}, err
	}

	return pki.KubeconfigOptions{
		Name:          r.cluster,
		Server:        server,
		TLSServerName: apiServerName,
		CAPEM:         ca.CertsPEM(),
		CertPEM:       cert,
		KeyPEM:        keyPEM,
	}, nil
}

// newKubeClient is a client of a cluster's API as an administrator. The client's key never leaves memory.
func (a *app) newKubeClient(
	ctx context.Context,
	cfg aws.Config,
	s store.Store,
	sealer store.Sealer,
	name string,
) (kubernetes.Interface, error) {
	rc, err := a.newRESTConfig(ctx, cfg, adminRequest{s, sealer, name, clientCertTTL})
	if err != nil {
		return nil, err
	}

	return kubernetes.NewForConfig(rc)
}

// newRESTConfig reaches a cluster's API as an administrator.
func (a *app) newRESTConfig(ctx context.Context, cfg aws.Config, r adminRequest) (*rest.Config, error) {
	access, err := a.issueAdminAccess(ctx, cfg, r)
	if err != nil {
		return nil, err
	}

	return &rest.Config{
		Host: access.Server,
		TLSClientConfig: rest.TLSClientConfig{
			ServerName: access.TLSServerName,
			CAData:     access.CAPEM,
			CertData:   access.CertPEM,
			KeyData:    access.KeyPEM,
		},
		Timeout: 30 * time.Second,
	}, nil
}

// loadBalancerAPI is what finding the API calls.
type loadBalancerAPI interface {
	elb.DescribeLoadBalancersAPIClient
	DescribeTags(
		context.Context,
		*elb.DescribeTagsInput,
		...func(*elb.Options),
	) (*elb.DescribeTagsOutput, error)
}

// maxTaggedARNs is how many resources DescribeTags takes.
const maxTaggedARNs = 20

// findLoadBalancerURL returns the URL of the cluster's API: its internet-facing load balancer, else the internal one.
func findLoadBalancerURL(ctx context.Context, api loadBalancerAPI, cluster string) (string, error) {
	var all []elbtypes.LoadBalancer
	pages := elb.NewDescribeLoadBalancersPaginator(api, &elb.DescribeLoadBalancersInput{})
	for pages.HasMorePages() {
		page, err := pages.NextPage(ctx)
		if err != nil {
			return "", fmt.Errorf("find the load balancer of cluster %s: %w", cluster, err)
		}

		all = append(all, page.LoadBalancers...)
	}

	internal := ""

	for start := 0; start < len(all); start += maxTaggedARNs {
		some := all[start:min(start+maxTaggedARNs, len(all))]
		mine, err := filterByCluster(ctx, api, some, cluster)
		if err != nil {
			return "", err
		}

		for _, lb := range mine {
			if lb.Scheme == elbtypes.LoadBalancerSchemeEnumInternetFacing {
				return "https://" + aws.ToString(lb.DNSName) + ":443", nil
			}

			internal = "https://" + aws.ToString(
				lb.DNSName,
			) + ":443" // its users may reach no other port (model.access)
		}
	}

	if internal == "" {
		return "", withHint(
			fmt.Errorf("cluster %s has no load balancer in AWS", cluster),
			"make the cluster with: slipway apply "+cluster+" --yes",
		)
	}

	return internal, nil
}

func filterByCluster(
	ctx context.Context,
	api loadBalancerAPI,
	some []elbtypes.LoadBalancer,
	cluster string,
) ([]elbtypes.LoadBalancer, error) {
	var arns []string
	for _, lb := range some {
		arns = append(arns, aws.ToString(lb.LoadBalancerArn))
	}

	out, err := api.DescribeTags(ctx, &elb.DescribeTagsInput{ResourceArns: arns})
	if err != nil {
		return nil, fmt.Errorf("find the load balancer of cluster %s: %w", cluster, err)
	}

	tagged := map[string]bool{}

	for _, d := range out.TagDescriptions {
		for _, t := range d.Tags {
			if aws.ToString(t.Key) == awskind.TagCluster && aws.ToString(t.Value) == cluster {
				tagged[aws.ToString(d.ResourceArn)] = true
			}
		}
	}

	var mine []elbtypes.LoadBalancer

	for _, lb := range some {
		if tagged[aws.ToString(lb.LoadBalancerArn)] {
			mine = append(mine, lb)
		}
	}

	return mine, nil
}

// writePrivateFile replaces a file at once, with mode 0600.
func writePrivateFile(file string, text []byte) error {
	if target, err := filepath.EvalSymlinks(file); err == nil {
		file = target // a linked kubeconfig stays a link
	}

	temp, err := os.CreateTemp(filepath.Dir(file), ".slipway-*") // mode 0600
	if err != nil {
		return err
	}

	defer os.Remove(temp.Name()) //nolint:errcheck // gone already when all went well
	_, err = temp.Write(text)
	if err := cmp.Or(err, temp.Sync(), temp.Close()); err != nil {
		return err
	}

	return os.Rename(temp.Name(), file)
}

// SPDX-License-Identifier: Apache-2.0

package e2e_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/route53"
	"github.com/aws/aws-sdk-go-v2/service/route53/types"

	"github.com/slipway-k8s/slipway/internal/lib/propagation"
)

const (
	externalDNS    = "external-dns"
	servicesDomain = "services.example.com"
	nameOfService  = "web." + servicesDomain
)

// createServicesZone creates a hosted zone for the records of Services, and returns its id. It belongs to nobody's cluster.
func (e *environment) createServicesZone() string {
	e.t.Helper()
	api := route53.NewFromConfig(e.aws)
	out, err := api.CreateHostedZone(e.t.Context(), &route53.CreateHostedZoneInput{
		Name: aws.String(servicesDomain), CallerReference: aws.String(e.t.Name()),
	})
	if err != nil {
		e.t.Fatal(err)
	}
	isMissing := func(err error) bool {
		_, missing := errors.AsType[*types.NoSuchHostedZone](err)
		return missing
	}
	err = propagation.Wait(e.t.Context(), isMissing, func() error {
		_, err := api.GetHostedZone(e.t.Context(), &route53.GetHostedZoneInput{Id: out.HostedZone.Id})
		return err
	})
	if err != nil {
		e.t.Fatal(err)
	}

	return strings.TrimPrefix(*out.HostedZone.Id, "/hostedzone/")
}

// servicesZone returns the id of the zone that createServicesZone has created.
func (e *environment) servicesZone() string {
	e.t.Helper()
	out, err := route53.NewFromConfig(e.aws).ListHostedZonesByName(e.t.Context(), &route53.ListHostedZonesByNameInput{
		DNSName: aws.String(servicesDomain), MaxItems: aws.Int32(1),
	})
	if err != nil || len(out.HostedZones) == 0 || *out.HostedZones[0].Name != servicesDomain+"." {
		e.t.Fatalf("the zone %s is not there: %v", servicesDomain, err)
	}

	return strings.TrimPrefix(*out.HostedZones[0].Id, "/hostedzone/")
}

// recordsOfServices returns the records of the zone as "NAME TYPE VALUE", without those that every zone has.
func (e *environment) recordsOfServices() ([]string, error) {
	var records []string
	pages := route53.NewListResourceRecordSetsPaginator(
		route53.NewFromConfig(e.aws), &route53.ListResourceRecordSetsInput{HostedZoneId: aws.String(e.servicesZone())},
	)
	for pages.HasMorePages() {
		page, err := pages.NextPage(e.t.Context())
		if err != nil {
			return nil, err
		}
		for _, set := range page.ResourceRecordSets {
			if set.Type == types.RRTypeNs || set.Type == types.RRTypeSoa {
				continue
			}
			for _, record := range set.ResourceRecords {
				records = append(records, fmt.Sprintf("%s %s %s", *set.Name, set.Type, *record.Value))
			}
		}
	}

	return records, nil
}

// applyDNSRecords applies the channel with the zone of the test.
func applyDNSRecords(e *environment) {
	e.applyChannel("dns-records.yaml", externalDNS, map[string]string{
		`"example.com"`: `"` + servicesDomain + `"`, `"Z0EXAMPLE"`: `"` + e.servicesZone() + `"`,
	})
}

// checkDNSRecord asks for a name of the Service, and waits for its record, whose owner is in a record next to it.
func checkDNSRecord(e *environment) {
	host := e.kubectl("get", "service", "web", "-o", "jsonpath={.status.loadBalancer.ingress[0].hostname}")
	e.kubectl("annotate", "service", "web", "external-dns.kubernetes.io/hostname="+nameOfService)
	start := time.Now()
	e.waitUntil("the Service has a DNS record", 2*time.Minute, func() error {
		records, err := e.recordsOfServices()
		if err != nil {
			return err
		}
		owned := slices.ContainsFunc(records, func(r string) bool {
			return strings.Contains(r, " TXT ") && strings.Contains(r, "external-dns/owner="+clusterName+",")
		})
		if !slices.Contains(records, nameOfService+". CNAME "+host) || !owned {
			return fmt.Errorf("the records are %q, want the name %s of %s and its owner\n%s", records, host, nameOfService,
				e.kubectl("logs", "-n", "kube-system", "deployment/"+externalDNS, "--tail=20"))
		}

		return nil
	})
	e.t.Logf("COUNT the Service has the DNS record %s after %s", nameOfService, time.Since(start).Round(time.Second))
}

// checkNoDNSRecord waits until no record of the Service is left.
func checkNoDNSRecord(e *environment) {
	start := time.Now()
	e.waitUntil("the DNS record of the Service is gone", 2*time.Minute, func() error {
		records, err := e.recordsOfServices()
		if err == nil && len(records) > 0 {
			err = fmt.Errorf("left: %q", records)
		}

		return err
	})
	e.t.Logf("COUNT the DNS record is gone %s after the Service", time.Since(start).Round(time.Second))
}

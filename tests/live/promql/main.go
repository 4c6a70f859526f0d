// Promql evaluates expressions by Prometheus' own engine. Its input is JSON:
//
//	{"step_s": 30, "series": [{"labels": {"__name__": …}, "values": [null, 1, …]}], "expressions": […]}
//
// with a sample of each series in each step from 0 on, but for those that are null. Its output lists, for
// each expression and each step, the labels and the value of each element that the expression yields.
package main

import (
	"context"
	"encoding/json"
	"fmt"
	"math"
	"os"
	"sort"
	"time"

	"github.com/prometheus/prometheus/model/histogram"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/model/value"
	"github.com/prometheus/prometheus/promql"
	"github.com/prometheus/prometheus/promql/parser"
	"github.com/prometheus/prometheus/storage"
	"github.com/prometheus/prometheus/tsdb/chunkenc"
	"github.com/prometheus/prometheus/tsdb/chunks"
	"github.com/prometheus/prometheus/util/annotations"
)

type input struct {
	StepS  int64 `json:"step_s"`
	Series []struct {
		Labels map[string]string `json:"labels"`
		Values []*float64        `json:"values"`
	} `json:"series"`
	Expressions []string `json:"expressions"`
}

type found struct {
	Labels map[string]string `json:"labels"`
	Value  float64           `json:"value"`
}

type sample struct {
	t int64
	f float64
}

func (s sample) ST() int64                     { return 0 }
func (s sample) T() int64                      { return s.t }
func (s sample) F() float64                    { return s.f }
func (s sample) H() *histogram.Histogram       { return nil }
func (s sample) FH() *histogram.FloatHistogram { return nil }
func (s sample) Type() chunkenc.ValueType      { return chunkenc.ValFloat }
func (s sample) Copy() chunks.Sample           { return s }

// stored holds all series in memory; it is queryable and querier in one.
type stored []storage.Series

func (s stored) Querier(_, _ int64) (storage.Querier, error) { return s, nil }
func (s stored) Close() error                                { return nil }
func (s stored) LabelValues(context.Context, string, *storage.LabelHints, ...*labels.Matcher) ([]string, annotations.Annotations, error) {
	return nil, nil, nil
}
func (s stored) LabelNames(context.Context, *storage.LabelHints, ...*labels.Matcher) ([]string, annotations.Annotations, error) {
	return nil, nil, nil
}

func (s stored) Select(_ context.Context, _ bool, _ *storage.SelectHints, matchers ...*labels.Matcher) storage.SeriesSet {
	chosen := &set{}
	for _, series := range s {
		fits := true
		for _, matcher := range matchers {
			fits = fits && matcher.Matches(series.Labels().Get(matcher.Name))
		}
		if fits {
			chosen.rest = append(chosen.rest, series)
		}
	}
	return chosen
}

type set struct {
	now  storage.Series
	rest []storage.Series
}

func (s *set) Next() bool {
	if len(s.rest) == 0 {
		return false
	}
	s.now, s.rest = s.rest[0], s.rest[1:]
	return true
}
func (s *set) At() storage.Series                { return s.now }
func (s *set) Err() error                        { return nil }
func (s *set) Warnings() annotations.Annotations { return nil }

func main() {
	var asked input
	if err := json.NewDecoder(os.Stdin).Decode(&asked); err != nil {
		fail(err)
	}
	var all stored
	steps := 0
	for _, each := range asked.Series {
		var samples []chunks.Sample
		wasThere := false
		for step, f := range each.Values {
			at := int64(step) * asked.StepS * 1000
			if f != nil {
				samples = append(samples, sample{at, *f})
			} else if wasThere {
				// What Prometheus writes when a target, or a series of it, is there no more.
				samples = append(samples, sample{at, math.Float64frombits(value.StaleNaN)})
			}
			wasThere = f != nil
		}
		steps = max(steps, len(each.Values))
		all = append(all, storage.NewListSeries(labels.FromMap(each.Labels), samples))
	}
	sort.Slice(all, func(i, j int) bool { return labels.Compare(all[i].Labels(), all[j].Labels()) < 0 })
	engine := promql.NewEngine(promql.EngineOpts{
		MaxSamples: 10_000_000, Timeout: time.Minute, LookbackDelta: 5 * time.Minute,
		Parser: parser.NewParser(parser.Options{}),
	})
	answers := make([][][]found, 0)
	for _, expression := range asked.Expressions {
		var answer [][]found
		for step := range steps {
			answer = append(answer, evaluated(engine, all, expression, int64(step)*asked.StepS))
		}
		answers = append(answers, answer)
	}
	if err := json.NewEncoder(os.Stdout).Encode(answers); err != nil {
		fail(err)
	}
}

func evaluated(engine *promql.Engine, all stored, expression string, atS int64) []found {
	ctx := context.Background()
	query, err := engine.NewInstantQuery(ctx, all, nil, expression, time.Unix(atS, 0))
	if err != nil {
		fail(err)
	}
	defer query.Close()
	vector, err := query.Exec(ctx).Vector()
	if err != nil {
		fail(err)
	}
	yielded := []found{}
	for _, each := range vector {
		yielded = append(yielded, found{each.Metric.Map(), each.F})
	}
	return yielded
}

func fail(err error) {
	fmt.Fprintln(os.Stderr, err)
	os.Exit(1)
}
